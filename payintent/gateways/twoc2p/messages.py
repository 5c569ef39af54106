"""Messages of 2C2P's payment API, with the field names of the wire."""

import html
import re
from datetime import datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

import msgspec
from msgspec import Meta, Raw, Struct

from payintent.core import ids
from payintent.core.money import minor_decimals
from payintent.gateways.minor_units import from_gateway, to_gateway
from payintent.gateways.port import GatewayAccount, GatewaySessionRequest

TOKEN_LIFE_S = 30 * 60
INVOICE_CHARS = 20  # the limit of QR payments
DESCRIPTION_CHARS_MAX = 250

_CHANNELS = {"card": ["CC"], "qr": ["QR"]}  # by default all channels of the merchant
#: The languages of 2C2P's pages; it rejects orders in any further language.
_LANGUAGES = frozenset({"en", "id", "ja", "my", "th", "vi", "zh"})
_Code = Annotated[str, Meta(pattern=r"^[0-9]{4}\Z")]


class TwoC2pEnvelope(Struct, frozen=True):
    payload: str


class TwoC2pToken(Struct, frozen=True):
    respCode: _Code  # noqa: N815 - the wire's names, here and below
    respDesc: str | None = None  # noqa: N815
    webPaymentUrl: str | None = None  # noqa: N815


class TwoC2pPayment(Struct, frozen=True):
    respCode: _Code  # noqa: N815
    respDesc: str | None = None  # noqa: N815
    merchantID: str | None = None  # noqa: N815
    invoiceNo: str | None = None  # noqa: N815
    amount: Raw = Raw(b"")
    currencyCode: str | None = None  # noqa: N815
    tranRef: str | None = None  # noqa: N815
    userDefined1: str | None = None  # noqa: N815


#: The decimals of ISO 4217, except that rupiah are whole.
DECIMALS = {"USD": 2, "THB": 2, "TWD": 2, "PHP": 2, "IDR": 0, "JPY": 0}

_PLACES = 5
_REFUND_PLACES = 2  # the maintenance API always writes two
_AMOUNT = re.compile(r"[0-9]{1,12}(\.[0-9]{1,5})?")


def format_order_amount(amount_minor: int, currency: str) -> str:
    """Format a price, such as `1590.00`; ValueError if 2C2P cannot represent it."""
    return _format(amount_minor, currency, DECIMALS[currency])


def format_action_amount(amount_minor: int, currency: str) -> str:
    """Format a refund with at least two places; ValueError if 2C2P cannot represent it.

    Any currency is possible, because unexpected captures can be refunded too.
    """
    decimals = DECIMALS.get(currency, minor_decimals(currency))
    to_gateway(amount_minor, currency, decimals)
    return _format(amount_minor, currency, max(_REFUND_PLACES, decimals))


def parse_order_amount(text: str, currency: str) -> int:
    """Parse an amount to our minor units; ValueError if it is malformed or has more decimals."""
    if not currency or not _AMOUNT.fullmatch(text):
        raise ValueError("the amount or the currency is malformed")
    whole, _, places = text.partition(".")
    return from_gateway(int(whole + places.ljust(_PLACES, "0")), currency, _PLACES)


def _format(amount_minor: int, currency: str, decimals: int) -> str:
    whole, rest = divmod(to_gateway(amount_minor, currency, decimals), 10**decimals)
    return f"{whole}.{rest:0{decimals}}" if decimals else str(whole)


LIVE, SANDBOX = "https://pgw.2c2p.com", "https://sandbox-pgw.2c2p.com"
#: The payment pages, by the base URL of the payment API.
PAGE_ORIGINS = {
    LIVE: "https://pgw-ui.2c2p.com",
    SANDBOX: "https://sandbox-pgw-ui.2c2p.com",
}
MAINTENANCE_PATH = "/PaymentAction/2.0/action"
#: The maintenance API for refunds, by the base URL of the payment API.
MAINTENANCE_URLS = {
    LIVE: f"https://t.2c2p.com{MAINTENANCE_PATH}",
    SANDBOX: f"https://demo2.2c2p.com/2C2PFrontend{MAINTENANCE_PATH}",
}
#: Indonesia's maintenance API. The account does not show its country, so the operator must set
#: `maintenance_url`.
INDONESIA = "https://pgwcore.dp.alipay.com"
ORIGINS = frozenset(
    {
        *(LIVE, SANDBOX, INDONESIA, *PAGE_ORIGINS.values()),
        *("https://t.2c2p.com", "https://demo2.2c2p.com"),
    }
)


def invoice_no(session_id: UUID) -> str:
    """Return a session's invoice number: the last 20 base62 digits of its id, 119 bits."""
    return ids.to_base62(session_id.int, ids.UUID_CHARS)[-INVOICE_CHARS:]


def inquiry(account: GatewayAccount, invoice: str) -> bytes:
    query = {"merchantID": merchant_id_of(account), "invoiceNo": invoice, "locale": "en"}
    return msgspec.json.encode(query)


def write_order(account: GatewayAccount, request: GatewaySessionRequest) -> bytes:
    """Return the order as JSON; the session id is both the invoice and the idempotency key."""
    name = ids.format_id(ids.SESSION, request.session_id)
    order: dict[str, Any] = {
        "merchantID": merchant_id_of(account),
        "invoiceNo": invoice_no(request.session_id),
        "idempotencyID": name,
        "description": _description(request.description),
        # A number, but not converted to a float.
        "amount": Raw(format_order_amount(request.amount_minor, request.currency).encode()),
        "currencyCode": request.currency,
        "frontendReturnUrl": request.return_url,
        "backendReturnUrl": request.callback_url,
        "userDefined1": name,
        "paymentExpiry": _expiry(account, request),
    }
    optional = {
        "paymentChannel": _CHANNELS.get(request.kind),
        "locale": _language(request.locale),
        "userInfo": request.payer_email and {"email": request.payer_email[:150]},
    }
    return msgspec.json.encode(order | {name: value for name, value in optional.items() if value})


def _language(locale: str | None) -> str | None:
    language = (locale or "").replace("_", "-").partition("-")[0].lower()
    return language if language in _LANGUAGES else None


def _description(text: str) -> str:
    """Escape HTML, as 2C2P requires, and shorten without cutting an escape."""
    escaped = ""
    for letter in text:
        longer = escaped + html.escape(letter)
        if len(longer) > DESCRIPTION_CHARS_MAX:
            break
        escaped = longer
    return escaped or "-"


def _expiry(account: GatewayAccount, request: GatewaySessionRequest) -> str:
    zone = datetime.strptime(account.credentials["utc_offset"], "%z").tzinfo
    return ends_at(request).astimezone(zone).strftime("%Y-%m-%d %H:%M:%S")


def ends_at(request: GatewaySessionRequest) -> datetime:
    return min(request.expires_at, request.opened_at + timedelta(seconds=TOKEN_LIFE_S))


def merchant_id_of(account: GatewayAccount) -> str:
    return account.credentials.get("merchant_id", "")
