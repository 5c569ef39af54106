"""The messages of 2C2P's payment API, which are JWTs signed with a shared secret.

The maintenance API uses the format in `sealed.py`.
"""

import base64
import binascii
import hashlib
import hmac
import html
import re
from datetime import datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

import msgspec
from msgspec import Meta, Raw, Struct

from payintent.core import ids
from payintent.core.money import get_minor_decimals
from payintent.gateways.http_client import GatewayHttpClient, HttpResult, decode_json
from payintent.gateways.minor_units import from_gateway, to_gateway
from payintent.gateways.port import GatewayAccount, GatewaySessionRequest

LIVE, SANDBOX = "https://pgw.2c2p.com", "https://sandbox-pgw.2c2p.com"
#: The origin of the payment pages for each base URL of the payment API.
PAGE_ORIGINS = {
    LIVE: "https://pgw-ui.2c2p.com",
    SANDBOX: "https://sandbox-pgw-ui.2c2p.com",
}
MAINTENANCE_PATH = "/PaymentAction/2.0/action"
#: The maintenance API, which handles refunds, for each base URL of the payment API.
MAINTENANCE_URLS = {
    LIVE: f"https://t.2c2p.com{MAINTENANCE_PATH}",
    SANDBOX: f"https://demo2.2c2p.com/2C2PFrontend{MAINTENANCE_PATH}",
}
#: Indonesia has a separate maintenance API. The credentials do not reveal an account's country, so
#: the operator must set `maintenance_url`.
INDONESIA = "https://pgwcore.dp.alipay.com"
ORIGINS = frozenset(
    {
        *(LIVE, SANDBOX, INDONESIA, *PAGE_ORIGINS.values()),
        *("https://t.2c2p.com", "https://demo2.2c2p.com"),
    }
)

#: Decimal places as in ISO 4217, except that IDR has none.
DECIMALS = {"USD": 2, "THB": 2, "TWD": 2, "PHP": 2, "IDR": 0, "JPY": 0}
_AMOUNT_DECIMALS_MAX = 5
_REFUND_DECIMALS_MIN = 2  # the maintenance API uses at least two decimals
_AMOUNT = re.compile(r"[0-9]{1,12}(\.[0-9]{1,5})?")

TOKEN_LIFETIME_S = 30 * 60
INVOICE_CHARS = 20  # the limit for QR payments
DESCRIPTION_CHARS_MAX = 250

#: 2C2P's channel code for each method kind. Other kinds use all channels.
_KIND_CHANNELS = {"card": "CC", "qr": "QR"}
#: 2C2P's channel code for each named method, from the list that 2C2P publishes.
BRAND_CHANNELS = {
    "promptpay": "QR",
    "truemoney": "TRUEMONEY",
    "gcash": "GCASH",
    "maya": "PAYMAYA",
    "grabpay": "GRAB",
    "linepay": "LINE",
    "shopeepay": "SHPPAY",
    "paynow": "PAYNOW",
    "alipay": "ALIPAY",
    "wechatpay": "WECHAT",
    "paypal": "PAYPAL",
}
#: The languages of 2C2P's pages. 2C2P rejects orders in any other language.
_LANGUAGES = frozenset({"en", "id", "ja", "my", "th", "vi", "zh"})
_BASE64URL = re.compile(r"[0-9A-Za-z_-]*")
_JWT_HEADER = b'{"alg":"HS256","typ":"JWT"}'
_HTTP_HEADERS = {"Content-Type": "application/json", "Accept": "application/json"}
_Code = Annotated[str, Meta(pattern=r"^[0-9]{4}\Z")]


class TwoC2pEnvelope(Struct, frozen=True):
    payload: str


class TwoC2pToken(Struct, frozen=True):
    respCode: _Code  # noqa: N815 - 2C2P's field names, here and below
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


def format_order_amount(amount_minor: int, currency: str) -> str:
    """Format a price, such as `1590.00`. Raises `ValueError` if 2C2P cannot represent it."""
    return _format(amount_minor, currency, DECIMALS[currency])


def format_action_amount(amount_minor: int, currency: str) -> str:
    """Format a refund amount. Raises `ValueError` if 2C2P cannot represent it.

    Any currency is accepted, because captures in unexpected currencies can also be refunded.
    """
    decimals = DECIMALS.get(currency, get_minor_decimals(currency))
    to_gateway(amount_minor, currency, decimals)
    return _format(amount_minor, currency, max(_REFUND_DECIMALS_MIN, decimals))


def parse_order_amount(text: str, currency: str) -> int:
    """Convert an amount to minor units. Raises `ValueError` if it is malformed or too precise."""
    if not currency or not _AMOUNT.fullmatch(text):
        raise ValueError("the amount or the currency is malformed")
    whole, _, fraction = text.partition(".")
    units = int(whole + fraction.ljust(_AMOUNT_DECIMALS_MAX, "0"))
    return from_gateway(units, currency, _AMOUNT_DECIMALS_MAX)


def _format(amount_minor: int, currency: str, decimals: int) -> str:
    whole, fraction = divmod(to_gateway(amount_minor, currency, decimals), 10**decimals)
    return f"{whole}.{fraction:0{decimals}}" if decimals else str(whole)


def invoice_no(session_id: UUID) -> str:
    """Return a session's invoice number: the last 20 base62 digits (119 bits) of its id."""
    return ids.to_base62(session_id.int, ids.UUID_CHARS)[-INVOICE_CHARS:]


def inquiry_body(account: GatewayAccount, invoice: str) -> bytes:
    query = {"merchantID": get_merchant_id(account), "invoiceNo": invoice, "locale": "en"}
    return msgspec.json.encode(query)


def order_body(account: GatewayAccount, request: GatewaySessionRequest) -> bytes:
    """Build the order. Its invoice number and idempotency key are derived from the session id."""
    reference = ids.format_id(ids.SESSION, request.session_id)
    order: dict[str, Any] = {
        "merchantID": get_merchant_id(account),
        "invoiceNo": invoice_no(request.session_id),
        "idempotencyID": reference,
        "description": _description(request.description),
        # A JSON number with the exact digits of the amount.
        "amount": Raw(format_order_amount(request.amount_minor, request.currency).encode()),
        "currencyCode": request.currency,
        "frontendReturnUrl": request.return_url,
        "backendReturnUrl": request.callback_url,
        "userDefined1": reference,
        "paymentExpiry": _format_deadline(account, request),
    }
    optional = {
        "paymentChannel": _channels(request),
        "locale": _language(request.locale),
        "userInfo": request.payer_email and {"email": request.payer_email[:150]},
    }
    return msgspec.json.encode(order | {name: value for name, value in optional.items() if value})


def _channels(request: GatewaySessionRequest) -> list[str] | None:
    channel = _KIND_CHANNELS.get(request.kind) or BRAND_CHANNELS.get(request.brand or "")
    return [channel] if channel else None


def _language(locale: str | None) -> str | None:
    language = (locale or "").replace("_", "-").partition("-")[0].lower()
    return language if language in _LANGUAGES else None


def _description(text: str) -> str:
    """Escape HTML, as 2C2P requires, and shorten the text without splitting an entity."""
    escaped_text = ""
    for char in text:
        longer_text = escaped_text + html.escape(char)
        if len(longer_text) > DESCRIPTION_CHARS_MAX:
            break
        escaped_text = longer_text
    return escaped_text or "-"


def _format_deadline(account: GatewayAccount, request: GatewaySessionRequest) -> str:
    zone = datetime.strptime(account.credentials["utc_offset"], "%z").tzinfo
    return payment_deadline(request).astimezone(zone).strftime("%Y-%m-%d %H:%M:%S")


def payment_deadline(request: GatewaySessionRequest) -> datetime:
    return min(request.expires_at, request.opened_at + timedelta(seconds=TOKEN_LIFETIME_S))


def get_merchant_id(account: GatewayAccount) -> str:
    return account.credentials.get("merchant_id", "")


class InvalidTokenError(Exception):
    """A token is not signed by 2C2P or is malformed."""


class _JwtHeader(Struct, frozen=True):
    alg: str
    crit: object = None


async def post_jwt(
    http: GatewayHttpClient, account: GatewayAccount, name: str, content: bytes
) -> HttpResult:
    """Send a request to the payment API, signed with the account's secret key."""
    token = sign_jwt(content, account.credentials.get("secret_key", ""))
    url = f"{account.base_url.rstrip('/')}/payment/4.3/{name}"
    body = msgspec.json.encode({"payload": token})
    return await http.request("POST", url, headers=_HTTP_HEADERS, body=body)


def verify_envelope(body: bytes, secret: str) -> bytes | None:
    """Return the signed JSON in a message, or None if the message is not signed.

    Raises `InvalidTokenError` if the signature is wrong.
    """
    envelope = decode_json(body, TwoC2pEnvelope)
    return None if envelope is None else verify_jwt(envelope.payload, secret)


def sign_jwt(content: bytes, secret: str) -> str:
    """Sign JSON as a JWT with HS256. The secret is used as text, even if it looks hexadecimal."""
    signing_input = f"{_base64url(_JWT_HEADER)}.{_base64url(content)}"
    return f"{signing_input}.{_mac(signing_input, secret)}"


def verify_jwt(token: str, secret: str) -> bytes:
    """Return the JSON in a JWT. Raises `InvalidTokenError` if it is not signed with the secret."""
    if not secret:  # anyone could sign with an empty secret
        raise InvalidTokenError("the account has no secret key")
    signing_input, _, mac = token.rpartition(".")
    # Compare the encoded text, because different base64 strings can decode to the same bytes.
    if not hmac.compare_digest(_mac(signing_input, secret).encode(), mac.encode(errors="replace")):
        raise InvalidTokenError("the signature does not match this account")
    encoded_header, _, encoded_content = signing_input.partition(".")
    try:
        header = msgspec.json.decode(_decode_base64url(encoded_header), type=_JwtHeader)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise InvalidTokenError("the header cannot be parsed") from None
    if header.alg != "HS256" or header.crit is not None:
        raise InvalidTokenError("the algorithm is not HS256")
    return _decode_base64url(encoded_content)


def _mac(signing_input: str, secret: str) -> str:
    content = signing_input.encode(errors="replace")
    return _base64url(hmac.new(secret.encode(), content, hashlib.sha256).digest())


def _base64url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _decode_base64url(text: str) -> bytes:
    if not _BASE64URL.fullmatch(text):
        raise InvalidTokenError("the token is not base64url")
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except binascii.Error:
        raise InvalidTokenError("the token is not base64url") from None
