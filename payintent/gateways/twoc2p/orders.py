"""Orders and inquiries of 2C2P's payment API."""

import html
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from msgspec import Raw

from payintent.domain import ids
from payintent.domain.gateway import GatewayAccount, GatewaySessionRequest
from payintent.gateways.twoc2p.amounts import format_order_amount

TOKEN_LIFE_S = 30 * 60
INVOICE_CHARS = 20  # the limit of QR payments
DESCRIPTION_CHARS_MAX = 250

_CHANNELS = {"card": ["CC"], "qr": ["QR"]}  # by default all channels of the merchant
#: The languages of 2C2P's pages; it rejects orders in any further language.
_LANGUAGES = frozenset({"en", "id", "ja", "my", "th", "vi", "zh"})


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
