"""The client of ECPay's servers: it sends signed forms and verifies the responses."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta, timezone
from urllib.parse import urlencode
from uuid import UUID

from payintent.domain import ids
from payintent.domain.gateway import (
    AccountProblem,
    GatewayAccount,
    GatewaySessionRef,
    NotContacted,
    OutcomeUnknown,
)
from payintent.gateways.ecpay.check_mac import sign_form, verify_form
from payintent.gateways.http_client import GatewayHttpClient, HttpAnswer, unusable

CREDENTIALS = frozenset({"merchant_id", "hash_key", "hash_iv"})
CURRENCY = "TWD"
DECIMALS = 0
TAIPEI = timezone(timedelta(hours=8))  # Taiwan has no daylight saving time
TRADE_NO_CHARS = 20
NOT_FOUND = "10200047"
PAID = "1"
_QUERY = "/Cashier/QueryTradeInfo/V5"
#: Whole dollars, as documented; but a capture of a finer amount must be reported too.
_AMOUNT = re.compile(r"[0-9]{1,12}(\.[0-9]{1,18})?")
_FORM = {"Content-Type": "application/x-www-form-urlencoded"}
_OK, _TOO_FAST = 200, 403


@dataclass(frozen=True, slots=True, kw_only=True)
class EcpayTrade:
    merchant_trade_no: str
    status: str
    trade_no: str
    amount: str  # in dollars
    authorisation: str  # the card authorisation (`gwsr`), which credit operations refer to
    is_attempted: bool  # the bank has decided on a card
    has_instalments: bool  # the buyer pays the bank in instalments

    @property
    def units(self) -> int:
        """Return whole dollars, the unit of all later requests about the trade."""
        return int(self.amount.partition(".")[0])


@dataclass(frozen=True, slots=True)
class EcpayApi:
    http: GatewayHttpClient
    now: Callable[[], float]

    async def post(
        self, account: GatewayAccount, path: str, fields: Mapping[str, str]
    ) -> HttpAnswer | OutcomeUnknown:
        return _require_ok(await self._send(account, path, fields))

    async def query(
        self, account: GatewayAccount, merchant_trade_no: str
    ) -> HttpAnswer | OutcomeUnknown:
        form = {"MerchantTradeNo": merchant_trade_no, "TimeStamp": str(int(self.now()))}
        return await self._send(account, _QUERY, form)

    async def _send(
        self, account: GatewayAccount, path: str, fields: Mapping[str, str]
    ) -> HttpAnswer | OutcomeUnknown:
        if missing := missing_credentials(account):
            return NotContacted(detail=missing, problem=AccountProblem.CREDENTIALS)
        form = sign_form(account, {"MerchantID": account.credentials["merchant_id"], **fields})
        return await self.http.request(
            "POST",
            account.base_url.rstrip("/") + path,
            headers=_FORM,
            body=urlencode(form).encode(),
        )

    async def find_trade(
        self, account: GatewayAccount, session: GatewaySessionRef
    ) -> EcpayTrade | OutcomeUnknown:
        """Query the trade of a session; the status of an unknown trade is `NOT_FOUND`."""
        merchant_trade_no = session_trade_no(session)
        answer = _require_ok(await self.query(account, merchant_trade_no))
        if isinstance(answer, OutcomeUnknown):
            return answer
        try:
            fields = verify_form(account, answer.body)
        except ValueError as error:
            return OutcomeUnknown(detail=f"the response cannot be verified: {error}")
        try:
            return _parse_trade(account, session, merchant_trade_no, fields)
        except ValueError as error:
            return OutcomeUnknown(detail=f"no result in the response: {error}", answered=True)


def _require_ok(answer: HttpAnswer | OutcomeUnknown) -> HttpAnswer | OutcomeUnknown:
    if isinstance(answer, OutcomeUnknown) or answer.status == _OK:
        return answer
    reason = ", too many requests" if answer.status == _TOO_FAST else ""
    return unusable(answer.status, f"status {answer.status}{reason}")


def merchant_trade_no_of(session_id: UUID) -> str:
    """Return a session's trade number: 20 of our id's 22 digits, which is 119 bits."""
    return ids.to_base62(session_id.int, ids.UUID_CHARS)[-TRADE_NO_CHARS:]


def session_trade_no(session: GatewaySessionRef) -> str:
    return session.reference or merchant_trade_no_of(session.session_id)


def missing_credentials(account: GatewayAccount) -> str:
    """Return a message about missing credentials; empty if there are none."""
    missing = sorted(name for name in CREDENTIALS if not account.credentials.get(name))
    return f"the account lacks {', '.join(missing)}" if missing else ""


def amount_of(fields: Mapping[str, str]) -> str:
    """Return the amount in dollars, by default zero; ValueError if it is malformed."""
    text = fields.get("TradeAmt") or "0"
    if not _AMOUNT.fullmatch(text):
        raise ValueError("the amount is not a number")
    return text


def _parse_trade(
    account: GatewayAccount,
    session: GatewaySessionRef,
    merchant_trade_no: str,
    fields: Mapping[str, str],
) -> EcpayTrade:
    trade = (fields.get("MerchantID"), fields.get("MerchantTradeNo"))
    if trade != (account.credentials["merchant_id"], merchant_trade_no):
        raise ValueError("it is about another trade")
    if fields.get("CustomField1", "") not in ("", session.session_id.hex):
        raise ValueError("it is about another session")
    return EcpayTrade(
        merchant_trade_no=merchant_trade_no,
        status=fields.get("TradeStatus", ""),
        trade_no=fields.get("TradeNo", ""),
        amount=amount_of(fields),
        authorisation=fields.get("gwsr", ""),
        is_attempted=bool(fields.get("process_date")),
        has_instalments=fields.get("stage", "").strip("0") != "",
    )
