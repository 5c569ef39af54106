"""Parse and validate request bodies and query parameters; `null` fields are treated as missing."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from operator import itemgetter
from typing import Any, cast
from uuid import UUID

import msgspec
from starlette.requests import Request

from payintent.core.countries import check_optional_country
from payintent.core.errors import BadRequestError, ErrorCode, RefusedError
from payintent.core.money import (
    CURRENCIES,
    parse_amount,
    require_payable_currency,
    to_smallest_unit,
    trim_zeros,
)
from payintent.core.texts import check_email, check_text
from payintent.http.bodies import MetadataDecoder, nesting_depth, read_idempotency_key, read_json
from payintent.http.pagination import read_limit, read_time, read_time_cursor
from payintent.merchants.access_store import AuthenticatedMerchant
from payintent.merchants.model import require_accepting_payments
from payintent.payments.create import OPERATION, InvalidCreateRequest
from payintent.payments.idempotency_store import compute_request_fingerprint
from payintent.payments.list_store import PaymentFilter
from payintent.payments.model import CreateAttempt, CreatePaymentRequest, PaymentStatus
from payintent.payments.return_urls import check_return_url, require_return_origin
from payintent.runtime.settings import Settings

#: Python's parser rejects integers with over 4,300 digits, and many clients have lower limits.
NUMBER_DIGITS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Metadata:
    text: str  # as received
    canonical: str | None  # equal for equivalent metadata; None if empty


_EMPTY = Metadata("{}", None)


def read_metadata(raw: msgspec.Raw, settings: Settings) -> Metadata:
    """Validate metadata; the default is `{}`.

    Raises `BAD_REQUEST` if it is not an object, or if its size, its nesting or the length of its
    numbers exceeds a limit.
    """
    content = bytes(raw)
    if content == b"null":
        return _EMPTY
    if not content.startswith(b"{"):
        raise BadRequestError("metadata must be an object")
    if len(content) > settings.metadata_bytes_max:
        raise BadRequestError(f"metadata must be at most {settings.metadata_bytes_max} bytes long")
    if nesting_depth(content) > settings.metadata_levels_max:
        raise BadRequestError(
            f"metadata must have at most {settings.metadata_levels_max} levels of nesting"
        )
    text = content.decode()
    return Metadata(text, _canonicalize(text))


def _canonicalize(text: str) -> str | None:
    """Return JSON that does not depend on key order, whitespace or escapes.

    Objects are encoded as `{"o": [[key, value], ...]}` and numbers as `{"n": "1.50"}`, so that the
    two encodings cannot be confused. Numbers are compared as text.
    """
    value = _METADATA_DECODER.decode(text)
    return None if value == _EMPTY_OBJECT else json.dumps(value, separators=(",", ":"))


def _tag_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {"o": sorted(pairs, key=itemgetter(0))}


def _tag_number(text: str) -> dict[str, str]:
    if len(text) > NUMBER_DIGITS_MAX and sum(map(str.isdigit, text)) > NUMBER_DIGITS_MAX:
        raise BadRequestError(
            f"a number in metadata must have at most {NUMBER_DIGITS_MAX} digits;"
            " send longer numbers as strings"
        )
    return {"n": text}


_EMPTY_OBJECT = _tag_object([])
# The hooks receive the text of a number before Python converts it.
_METADATA_DECODER = json.JSONDecoder(
    object_pairs_hook=_tag_object, parse_float=cast("Any", _tag_number), parse_int=_tag_number
)


EXPIRES_IN_MAX_S = 86_400
EXPIRES_IN_DEFAULT_S = 1_800
_PAYER_UID_MAX = 255
_REASON_MAX = 500
_DESTINATION_MAX = 100


class CreatePaymentBody(msgspec.Struct):
    """The body of `POST /payments` (spec section 2.2); unknown fields are ignored."""

    currency: str
    amount: msgspec.Raw
    payer_uid: str
    payer_email: str | None = None
    expires_in: int | None = None
    country: str | None = None
    metadata: msgspec.Raw = msgspec.Raw(b"null")
    include_pegged_assets: bool | None = None
    return_url: str | None = None
    cancel_url: str | None = None


class PayerEmailBody(msgspec.Struct):
    payer_email: str


class PostTransactionBody(msgspec.Struct):
    tx_hash: str
    step: str


class CreateRefundBody(msgspec.Struct):
    """The body of `POST /payments/{id}/refunds`; `amount` defaults to the remaining amount."""

    amount: msgspec.Raw = msgspec.Raw(b"")
    reason: str | None = None
    destination: str | None = None


class OnrampOrderBody(msgspec.Struct):
    country: str  # the only field that is used


CREATE_DECODER = MetadataDecoder(CreatePaymentBody)
EMAIL_DECODER = msgspec.json.Decoder(PayerEmailBody)
TRANSACTION_DECODER = msgspec.json.Decoder(PostTransactionBody)
REFUND_DECODER = msgspec.json.Decoder(CreateRefundBody)
ONRAMP_DECODER = msgspec.json.Decoder(OnrampOrderBody)
_STRING_DECODER = msgspec.json.Decoder(str)


async def read_create_request(
    request: Request, merchant: AuthenticatedMerchant, settings: Settings
) -> CreatePaymentRequest | InvalidCreateRequest:
    """Read and validate a `POST /payments` request.

    Raises `BAD_REQUEST` for a malformed request. A well-formed request with invalid values is
    returned as an `InvalidCreateRequest`, because its key may already have a result.
    """
    key = read_idempotency_key(request.headers)
    if key is None:
        raise BadRequestError("Idempotency-Key is required")
    body = await read_json(request, CREATE_DECODER, settings.body_bytes_max)
    return parse_create_request(key, body, merchant, settings)


def parse_create_request(
    key: UUID, body: CreatePaymentBody, merchant: AuthenticatedMerchant, settings: Settings
) -> CreatePaymentRequest | InvalidCreateRequest:
    _check_body(body)
    metadata = read_metadata(body.metadata, settings)
    amount = _decode_string(body.amount)
    expires_in_s = body.expires_in or EXPIRES_IN_DEFAULT_S
    attempt = CreateAttempt(
        merchant_id=merchant.merchant_id,
        key=key,
        request_hash=compute_request_fingerprint(
            OPERATION,
            currency=body.currency,
            amount=trim_zeros(amount),
            payer_uid=body.payer_uid,
            payer_email=body.payer_email,
            expires_in=expires_in_s,
            country=body.country,
            include_pegged_assets=body.include_pegged_assets is not False,
            metadata=metadata.canonical,
            return_url=body.return_url,
            cancel_url=body.cancel_url,
        ),
        raw_fields=(
            OPERATION,
            body.currency,
            amount,
            body.payer_uid,
            body.payer_email,
            body.expires_in,
            body.country,
            body.include_pegged_assets,
            metadata.text,
        ),
        expires_in_s=expires_in_s,
        country=body.country,
    )
    try:
        return _validate_create_request(attempt, body, amount, metadata.text, merchant, settings)
    except RefusedError as refusal:
        return InvalidCreateRequest(attempt, refusal)


def _validate_create_request(
    attempt: CreateAttempt,
    body: CreatePaymentBody,
    amount_text: str,
    metadata: str,
    merchant: AuthenticatedMerchant,
    settings: Settings,
) -> CreatePaymentRequest:
    """Validate a create request. Raises the error of the first check that fails."""
    payable_currencies, accepts_pegged_assets = (
        merchant.payable_currencies,
        body.include_pegged_assets is not False,
    )
    require_accepting_payments(merchant.activation)
    require_payable_currency(body.currency, payable_currencies, pegged=accepts_pegged_assets)
    amount = parse_amount(amount_text, body.currency, settings.amount_min, settings.amount_max)
    check_token_decimals(amount, body.currency, payable_currencies)
    check_optional_country(body.country)
    require_return_origin("return_url", body.return_url, merchant.return_origins)
    require_return_origin("cancel_url", body.cancel_url, merchant.return_origins)
    return CreatePaymentRequest(
        merchant_id=attempt.merchant_id,
        key=attempt.key,
        request_hash=attempt.request_hash,
        raw_fields=attempt.raw_fields,
        expires_in_s=attempt.expires_in_s,
        country=attempt.country,
        currency=body.currency,
        amount=amount,
        amount_text=amount_text,
        payer_uid=body.payer_uid,
        payer_email=body.payer_email,
        include_pegged_assets=accepts_pegged_assets,
        metadata=metadata,
        tax_manager=merchant.tax_manager,
        return_url=body.return_url,
        cancel_url=body.cancel_url,
    )


def _check_body(body: CreatePaymentBody) -> None:
    check_text("currency", body.currency, 32)
    check_text("payer_uid", body.payer_uid, _PAYER_UID_MAX)
    check_email(body.payer_email)
    if body.expires_in is not None and not 0 <= body.expires_in <= EXPIRES_IN_MAX_S:
        raise BadRequestError(f"expires_in must be from 0 to {EXPIRES_IN_MAX_S} seconds")
    if body.country is not None and len(body.country) != 2:  # noqa: PLR2004 - alpha-2
        raise BadRequestError("country must be a two-letter code")
    check_return_url("return_url", body.return_url)
    check_return_url("cancel_url", body.cancel_url)


def read_payment_filter(query: Mapping[str, str], merchant_id: int) -> PaymentFilter:
    """Parse the filter of a payment list. Raises `BAD_REQUEST` if a parameter is malformed."""
    status, currency, payer = query.get("status"), query.get("currency"), query.get("payer_uid")
    if status is not None and status not in set(PaymentStatus):
        raise BadRequestError(f"status must be one of {', '.join(PaymentStatus)}")
    if currency is not None and currency not in CURRENCIES:
        codes = ", ".join(CURRENCIES)
        raise RefusedError(ErrorCode.INVALID_CURRENCY, f"currency must be one of {codes}")
    check_text("payer_uid", payer, _PAYER_UID_MAX)
    cursor = query.get("cursor")
    return PaymentFilter(
        merchant_id=merchant_id,
        statuses=tuple(PaymentStatus) if status is None else (PaymentStatus(status),),
        currencies=tuple(CURRENCIES) if currency is None else (currency,),
        payer_uid=payer,
        created_from=_read_time("created_from", query.get("created_from")),
        created_before=_read_time("created_to", query.get("created_to")),
        before=None if cursor is None else read_time_cursor(cursor),
        limit=read_limit(query.get("limit")),
    )


def _read_time(name: str, raw: str | None) -> datetime | None:
    return None if raw is None else read_time(name, raw)


def check_refund_texts(body: CreateRefundBody) -> None:
    check_text("reason", body.reason, _REASON_MAX)
    check_text("destination", body.destination, _DESTINATION_MAX)


def check_token_decimals(
    amount: Decimal, currency: str, payable_currencies: Mapping[str, int]
) -> None:
    """Raise `INVALID_AMOUNT` if none of the merchant's tokens can represent the amount.

    `payable_currencies` maps each currency to the maximum number of decimals that the merchant's
    methods support.
    """
    if not CURRENCIES[currency].is_crypto:
        return
    decimals = payable_currencies[currency]
    if to_smallest_unit(amount, decimals) is None:
        raise RefusedError(
            ErrorCode.INVALID_AMOUNT, f"{currency} amounts must have at most {decimals} decimals"
        )


def _decode_string(raw: msgspec.Raw) -> Any:
    """Decode a JSON string; return None for any other value."""
    raw_json = bytes(raw)
    if not raw_json.startswith(b'"'):
        return None
    try:
        return _STRING_DECODER.decode(raw_json)
    except msgspec.DecodeError:
        return None


def read_refund_amount(raw: msgspec.Raw) -> str | None:
    """Return a refund amount as a string, or None if the field is missing.

    Raises `INVALID_AMOUNT` if the value is not a string. `null` is rejected too, because a client
    bug must not refund the whole payment.
    """
    if not bytes(raw):
        return None
    text = _decode_string(raw)
    if text is None:
        raise RefusedError(
            ErrorCode.INVALID_AMOUNT, "amount must be a plain decimal string", is_malformed=True
        )
    return text
