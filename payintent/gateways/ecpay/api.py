"""The client for ECPay's API. It sends signed forms and verifies the responses."""

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta, timezone
from urllib.parse import parse_qsl, quote_plus, urlencode
from uuid import UUID

from payintent.core import ids
from payintent.gateways.http_client import (
    GatewayHttpClient,
    HttpResult,
    inconclusive_response,
    unusable_response,
)
from payintent.gateways.port import (
    AccountProblem,
    GatewayAccount,
    GatewaySessionRef,
    NotContacted,
    OutcomeUnknown,
)

CREDENTIALS = frozenset({"merchant_id", "hash_key", "hash_iv"})
CURRENCY = "TWD"
DECIMALS = 0
TAIPEI = timezone(timedelta(hours=8))  # Taiwan has no daylight saving time
TRADE_NO_CHARS = 20
NOT_FOUND = "10200047"
PAID = "1"
_QUERY = "/Cashier/QueryTradeInfo/V5"
#: ECPay documents amounts in whole dollars, but a capture with decimals must also be reported.
_AMOUNT = re.compile(r"[0-9]{1,12}(\.[0-9]{1,18})?")
_FORM_HEADERS = {"Content-Type": "application/x-www-form-urlencoded"}
_OK, _RATE_LIMITED = 200, 403
CHECK_MAC_VALUE = "CheckMacValue"
FIELDS_MAX = 200
_EMBEDDED_FIELD = re.compile(r"&[^&]*=")
_NAME = re.compile(r"[0-9A-Za-z_]{1,50}")


def check_mac_value(fields: Mapping[str, str], hash_key: str, hash_iv: str) -> str:
    ordered = sorted((name for name in fields if name != CHECK_MAC_VALUE), key=str.lower)
    content = "&".join(f"{name}={fields[name]}" for name in ordered)
    encoded_text = _url_encode(f"HashKey={hash_key}&{content}&HashIV={hash_iv}")
    return hashlib.sha256(encoded_text.encode()).hexdigest().upper()


def sign_form(account: GatewayAccount, fields: Mapping[str, str]) -> dict[str, str]:
    hash_key, hash_iv = account.credentials["hash_key"], account.credentials["hash_iv"]
    return {**fields, CHECK_MAC_VALUE: check_mac_value(fields, hash_key, hash_iv)}


def verify_form(account: GatewayAccount, body: bytes) -> dict[str, str]:
    """Parse a form. Raises `ValueError` if it is not signed with this account's secrets."""
    hash_key = account.credentials.get("hash_key", "")
    hash_iv = account.credentials.get("hash_iv", "")
    if not hash_key or not hash_iv:  # anyone could sign with empty secrets
        raise ValueError("the account has no hash_key or hash_iv")
    fields = parse_form(body)
    signature = fields.get(CHECK_MAC_VALUE, "")
    expected_signature = check_mac_value(fields, hash_key, hash_iv)
    if not hmac.compare_digest(expected_signature.encode(), signature.encode(errors="replace")):
        raise ValueError("CheckMacValue does not match this account")
    if any(_EMBEDDED_FIELD.search(value) for value in fields.values()):
        # The hash covers the fields joined by `&` and `=`, so a value can imitate a field.
        raise ValueError("a signed value is ambiguous because it contains a field")
    return fields


def parse_form(body: bytes) -> dict[str, str]:
    """Parse a form without verifying it. Raises `ValueError` if a name is invalid or repeated."""
    pairs = parse_qsl(
        body.decode(), keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX
    )
    fields: dict[str, str] = {}
    names: set[str] = set()  # in lower case, because the hash is case-insensitive
    for name, value in pairs:
        if not _NAME.fullmatch(name) or name.lower() in names:
            raise ValueError("a field name is invalid or repeated")
        fields[name] = value
        names.add(name.lower())
    return fields


def _url_encode(text: str) -> str:
    """Encode as .NET's `HttpUtility.UrlEncode` does, in lower case."""
    return quote_plus(text, safe="!*()").replace("~", "%7E").lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class EcpayTrade:
    merchant_trade_no: str
    status: str
    trade_no: str
    amount: str  # in dollars
    authorisation: str  # the card authorisation number (`gwsr`), which card operations require
    was_attempted: bool  # the bank has accepted or declined a card
    has_instalments: bool  # the buyer pays the bank in instalments

    @property
    def units(self) -> int:
        """The amount in whole dollars, which further requests about the trade must contain."""
        return int(self.amount.partition(".")[0])


@dataclass(frozen=True, slots=True)
class EcpayApi:
    http: GatewayHttpClient
    now: Callable[[], float]

    async def post(
        self, account: GatewayAccount, path: str, fields: Mapping[str, str]
    ) -> HttpResult:
        return _check_status(await self._send(account, path, fields))

    async def query(self, account: GatewayAccount, merchant_trade_no: str) -> HttpResult:
        form = {"MerchantTradeNo": merchant_trade_no, "TimeStamp": str(int(self.now()))}
        return await self._send(account, _QUERY, form)

    async def _send(
        self, account: GatewayAccount, path: str, fields: Mapping[str, str]
    ) -> HttpResult:
        if problem := describe_missing_credentials(account):
            return NotContacted(detail=problem, problem=AccountProblem.CREDENTIALS)
        form = sign_form(account, {"MerchantID": account.credentials["merchant_id"], **fields})
        return await self.http.request(
            "POST",
            account.base_url.rstrip("/") + path,
            headers=_FORM_HEADERS,
            body=urlencode(form).encode(),
        )

    async def find_trade(
        self, account: GatewayAccount, session: GatewaySessionRef
    ) -> EcpayTrade | OutcomeUnknown:
        """Query a session's trade. The status of an unknown trade is `NOT_FOUND`."""
        merchant_trade_no = get_trade_no(session)
        response = _check_status(await self.query(account, merchant_trade_no))
        if isinstance(response, OutcomeUnknown):
            return response
        try:
            fields = verify_form(account, response.body)
        except ValueError as error:
            return OutcomeUnknown(detail=f"the response cannot be verified: {error}")
        try:
            return _parse_trade(account, session, merchant_trade_no, fields)
        except ValueError as error:
            return inconclusive_response(f"the response cannot be used: {error}")


def _check_status(response: HttpResult) -> HttpResult:
    if isinstance(response, OutcomeUnknown) or response.status == _OK:
        return response
    reason = ", too many requests" if response.status == _RATE_LIMITED else ""
    return unusable_response(response.status, f"status {response.status}{reason}")


def derive_merchant_trade_no(session_id: UUID) -> str:
    """Return a session's trade number: the last 20 base62 digits (119 bits) of its id."""
    return ids.to_base62(session_id.int, ids.UUID_CHARS)[-TRADE_NO_CHARS:]


def get_trade_no(session: GatewaySessionRef) -> str:
    return session.reference or derive_merchant_trade_no(session.session_id)


def describe_missing_credentials(account: GatewayAccount) -> str:
    """Return a message that lists missing credentials, or an empty string."""
    names = sorted(name for name in CREDENTIALS if not account.credentials.get(name))
    return f"the account has no {', '.join(names)}" if names else ""


def parse_trade_amount(fields: Mapping[str, str]) -> str:
    """Return the amount in dollars, or 0 if it is missing. Raises `ValueError` if malformed."""
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
        raise ValueError("it belongs to another trade")
    if fields.get("CustomField1", "") not in ("", session.session_id.hex):
        raise ValueError("it belongs to another session")
    return EcpayTrade(
        merchant_trade_no=merchant_trade_no,
        status=fields.get("TradeStatus", ""),
        trade_no=fields.get("TradeNo", ""),
        amount=parse_trade_amount(fields),
        authorisation=fields.get("gwsr", ""),
        was_attempted=bool(fields.get("process_date")),
        has_instalments=fields.get("stage", "").strip("0") != "",
    )
