"""The client of ECPay's servers: signed forms out, and which answers are accepted."""

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
#: Whole dollars, as documented; a finer amount was never requested, yet it was taken.
_AMOUNT = re.compile(r"[0-9]{1,12}(\.[0-9]{1,18})?")
_FORM = {"Content-Type": "application/x-www-form-urlencoded"}
_OK, _TOO_FAST = 200, 403


@dataclass(frozen=True, slots=True, kw_only=True)
class EcpayTrade:
    merchant_trade_no: str
    status: str
    trade_no: str
    amount: str  # in dollars
    authorisation: str  # of the card (`gwsr`): its id in the credit operations
    tried: bool  # the bank has decided on a card
    instalments: bool  # the buyer pays the bank in instalments

    @property
    def units(self) -> int:
        """Return whole dollars, in which every later request about the trade counts."""
        return int(self.amount.partition(".")[0])


@dataclass(frozen=True, slots=True)
class EcpayApi:
    http: GatewayHttpClient
    now: Callable[[], float]

    async def post(
        self, account: GatewayAccount, path: str, fields: Mapping[str, str]
    ) -> HttpAnswer | OutcomeUnknown:
        answer = await self._send(account, path, fields)
        if isinstance(answer, OutcomeUnknown) or answer.status == _OK:
            return answer
        why = ", asked too often" if answer.status == _TOO_FAST else ""
        return unusable(answer.status, f"status {answer.status}{why}")

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

    async def look_up(
        self, account: GatewayAccount, session: GatewaySessionRef
    ) -> EcpayTrade | OutcomeUnknown:
        """Query the trade of a session; one that ECPay has never seen has a status of its own."""
        merchant_trade_no = session_trade_no(session)
        form = {"MerchantTradeNo": merchant_trade_no, "TimeStamp": str(int(self.now()))}
        answer = await self.post(account, _QUERY, form)
        if isinstance(answer, OutcomeUnknown):
            return answer
        try:
            fields = verify_form(account, answer.body)
        except ValueError as error:
            return OutcomeUnknown(detail=f"an answer that cannot be verified: {error}")
        try:
            return _trade(account, session, merchant_trade_no, fields)
        except ValueError as error:
            return OutcomeUnknown(detail=f"an answer without a result: {error}", answered=True)


def merchant_trade_no_of(session_id: UUID) -> str:
    """Return a session's trade number: 20 of our id's 22 digits, which is 119 bits."""
    return ids.to_base62(session_id.int, ids.UUID_CHARS)[-TRADE_NO_CHARS:]


def session_trade_no(session: GatewaySessionRef) -> str:
    """Return the number of a session's trade, also while its creation is unanswered."""
    return session.reference or merchant_trade_no_of(session.session_id)


def missing_credentials(account: GatewayAccount) -> str:
    """Return which credentials an account lacks, as a text; empty where it has all."""
    missing = sorted(name for name in CREDENTIALS if not account.credentials.get(name))
    return f"the account lacks {', '.join(missing)}" if missing else ""


def amount_of(fields: Mapping[str, str]) -> str:
    """Read an amount in dollars, zero where there is none; ValueError for what is no amount."""
    text = fields.get("TradeAmt") or "0"
    if not _AMOUNT.fullmatch(text):
        raise ValueError("an amount that is no number")
    return text


def _trade(
    account: GatewayAccount,
    session: GatewaySessionRef,
    merchant_trade_no: str,
    fields: Mapping[str, str],
) -> EcpayTrade:
    about = (fields.get("MerchantID"), fields.get("MerchantTradeNo"))
    if about != (account.credentials["merchant_id"], merchant_trade_no):
        raise ValueError("it is about another trade")
    if fields.get("CustomField1", "") not in ("", session.session_id.hex):
        raise ValueError("it is about another session")
    return EcpayTrade(
        merchant_trade_no=merchant_trade_no,
        status=fields.get("TradeStatus", ""),
        trade_no=fields.get("TradeNo", ""),
        amount=amount_of(fields),
        authorisation=fields.get("gwsr", ""),
        tried=bool(fields.get("process_date")),
        instalments=fields.get("stage", "").strip("0") != "",
    )
