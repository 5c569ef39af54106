"""Parse and validate the terms of a payment link."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated

import msgspec

from payintent.core.errors import ErrorCode, RefusedError, UnprocessableError
from payintent.core.money import parse_amount, require_payable_currency, trim_zeros
from payintent.core.texts import check_text
from payintent.http.pagination import read_time
from payintent.merchants.access_store import AuthenticatedMerchant
from payintent.merchants.model import require_accepting_payments
from payintent.payment_links.model import (
    DESCRIPTION_CHARS_MAX,
    ORDER_ID_CHARS_MAX,
    TITLE_CHARS_MAX,
    USES_MAX,
    AmountRange,
    LinkTerms,
)
from payintent.payments.idempotency_store import compute_request_fingerprint
from payintent.payments.return_urls import check_return_url, require_return_origin
from payintent.payments.schemas import check_token_decimals
from payintent.runtime.json_format import format_timestamp
from payintent.runtime.settings import Settings

OPERATION = "payment link"
_CURRENCY_CHARS_MAX = 32
#: The database driver stores `datetime.max` as infinity, and reads infinity without a time zone.
_EXPIRY_MAX = datetime.max.replace(microsecond=0, tzinfo=UTC)


class CreateLinkBody(msgspec.Struct):
    """The body of `POST /payment-links`; unknown fields are ignored."""

    title: str
    currency: str
    description: str | None = None
    order_id: str | None = None
    amount: str | None = None
    amount_min: str | None = None
    amount_max: str | None = None
    max_uses: Annotated[int, msgspec.Meta(ge=1, le=USES_MAX)] | None = None
    expires_at: str | None = None
    return_url: str | None = None
    cancel_url: str | None = None


LINK_DECODER = msgspec.json.Decoder(CreateLinkBody)


def check_link_body(body: CreateLinkBody) -> None:
    """Raise `BAD_REQUEST` if a field is malformed, regardless of the merchant's configuration."""
    check_text("title", body.title, TITLE_CHARS_MAX)
    check_text("description", body.description, DESCRIPTION_CHARS_MAX)
    check_text("order_id", body.order_id, ORDER_ID_CHARS_MAX)
    check_text("currency", body.currency, _CURRENCY_CHARS_MAX)
    check_return_url("return_url", body.return_url)
    check_return_url("cancel_url", body.cancel_url)
    _read_expiry(body)


def compute_link_fingerprint(body: CreateLinkBody) -> bytes:
    expires_at = _read_expiry(body)
    return compute_request_fingerprint(
        OPERATION,
        title=body.title,
        description=body.description,
        order_id=body.order_id,
        currency=body.currency,
        amount=trim_zeros(body.amount),
        amount_min=trim_zeros(body.amount_min),
        amount_max=trim_zeros(body.amount_max),
        max_uses=body.max_uses,
        expires_at=expires_at and format_timestamp(expires_at),
        return_url=body.return_url,
        cancel_url=body.cancel_url,
    )


def read_link_terms(
    body: CreateLinkBody, merchant: AuthenticatedMerchant, settings: Settings, now: datetime
) -> LinkTerms:
    """Validate the terms in the same way as for a payment. Raises the first error."""
    require_accepting_payments(merchant.activation)
    require_payable_currency(body.currency, merchant.payable_currencies, pegged=True)
    if body.amount is not None and (body.amount_min, body.amount_max) != (None, None):
        raise UnprocessableError("amount_min and amount_max are only for links without an amount")
    amount = _parse_link_amount(body.amount, body.currency, merchant, settings)
    amount_range = AmountRange(
        _parse_link_amount(body.amount_min, body.currency, merchant, settings),
        _parse_link_amount(body.amount_max, body.currency, merchant, settings),
    )
    if (
        amount_range.minimum is not None
        and amount_range.maximum is not None
        and amount_range.minimum > amount_range.maximum
    ):
        raise RefusedError(ErrorCode.INVALID_AMOUNT, "amount_min must not exceed amount_max")
    require_return_origin("return_url", body.return_url, merchant.return_origins)
    require_return_origin("cancel_url", body.cancel_url, merchant.return_origins)
    expires_at = _read_expiry(body)
    if expires_at is not None and expires_at <= now:
        raise UnprocessableError("expires_at must be in the future")
    return LinkTerms(
        title=body.title,
        description=body.description,
        order_id=body.order_id,
        currency=body.currency,
        amount=amount,
        amount_text=body.amount,
        amount_range=amount_range,
        max_uses=body.max_uses,
        expires_at=expires_at,
        return_url=body.return_url,
        cancel_url=body.cancel_url,
    )


def _parse_link_amount(
    text: str | None, currency: str, merchant: AuthenticatedMerchant, settings: Settings
) -> Decimal | None:
    if text is None:
        return None
    amount = parse_amount(text, currency, settings.amount_min, settings.amount_max)
    check_token_decimals(amount, currency, merchant.payable_currencies)
    return amount


def _read_expiry(body: CreateLinkBody) -> datetime | None:
    if body.expires_at is None:
        return None
    return min(read_time("expires_at", body.expires_at), _EXPIRY_MAX)
