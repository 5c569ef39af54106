"""The merchant's routes: create, read and cancel a payment. `list_payments` has the list."""

from dataclasses import dataclass
from typing import Any, cast
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response

from payintent import tracing
from payintent.api import schemas
from payintent.api.context import AppContext, get_context
from payintent.api.etag import REPLAYED, json_response
from payintent.api.merchant_access import merchant_route, spend_request
from payintent.api.metadata import Metadata, read_metadata
from payintent.api.rate_limits import RateLimitExceededError
from payintent.api.request_body import read_idempotency_key, read_json
from payintent.domain import countries, currencies, ids
from payintent.domain.activation import require_in_service
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.domain.fraud import FraudDeniedError
from payintent.domain.money import parse_amount, trim_zeros
from payintent.domain.payment import CreateAttempt, CreatePaymentRequest, PaymentTerms
from payintent.domain.rate_limit import RateLimitClass
from payintent.payments.cancel import cancel_by_merchant
from payintent.payments.create import OPERATION, CreatedPayment, replay_create
from payintent.payments.idempotency import request_fingerprint
from payintent.payments.serialization import denial_fields, payment_fields
from payintent.storage.api_keys import AuthenticatedMerchant
from payintent.storage.payments import PaymentSnapshot


async def post_payment(request: Request) -> Response:
    """`POST /payments`: spends one of the create limit; a replay, one of the other limit.

    Above its limit a merchant still gets the result of a used key, as its look-up limit allows.
    """
    app = get_context(request)
    merchant = await app.authenticator.authenticate(request)
    try:
        await spend_request(request, app, merchant, RateLimitClass.CREATE)
    except RateLimitExceededError as exceeded:
        created = await _replayed(request, app, merchant, exceeded)
    else:
        try:
            created = await _create(request, app, merchant)
        except FraudDeniedError as denied:
            if denied.replayed:
                await _spend_as_read(request, app, merchant)
            raise
        if created.replayed:
            await _spend_as_read(request, app, merchant)
    tracing.follow_payment(created.payment.id, creates=not created.replayed)
    return _created(app, created)


@merchant_route
async def get_payment(
    request: Request, app: AppContext, merchant: AuthenticatedMerchant
) -> Response:
    payment_id = ids.parse_id(ids.PAYMENT, request.path_params["payment_id"])
    snapshot = await app.service.payment_lookup.get_merchant_payment(
        merchant.merchant_id, payment_id
    )
    return json_response(payment_response_fields(app, snapshot))


@merchant_route
async def cancel_payment(
    request: Request, app: AppContext, merchant: AuthenticatedMerchant
) -> Response:
    key = read_idempotency_key(request.headers)
    payment_id = ids.parse_id(ids.PAYMENT, request.path_params["payment_id"])
    snapshot = await app.service.payment_lookup.get_merchant_payment(
        merchant.merchant_id, payment_id
    )
    async with app.service.database.transaction() as tx:
        fresh = await cancel_by_merchant(tx, snapshot.payment, key)
    return json_response({"status": "cancelled"}, headers=None if fresh else REPLAYED)


def payment_response_fields(app: AppContext, snapshot: PaymentSnapshot) -> dict[str, Any]:
    """Return a payment as its merchant reads it; `checkout_url` has no query here."""
    fields = payment_fields(snapshot.payment, snapshot.session)
    base = app.service.settings.checkout_base
    if base:
        fields["checkout_url"] = f"{base}/{snapshot.payment.checkout_id}"
    return fields


async def answer_denial(_: Request, error: Exception) -> Response:
    """Answer a denial by fraud screening with 200 and the denial (spec section 7.4)."""
    denied = cast("FraudDeniedError", error)
    return json_response(
        denial_fields(denied.denial), headers=REPLAYED if denied.replayed else None
    )


async def _spend_as_read(
    request: Request, app: AppContext, merchant: AuthenticatedMerchant
) -> None:
    app.limiter.put_back(merchant, RateLimitClass.CREATE)
    await spend_request(request, app, merchant, RateLimitClass.READ)


@dataclass(frozen=True, slots=True)
class _Sent:
    """A create as it was sent: its types are checked, its values are not."""

    body: schemas.CreatePaymentBody
    metadata: str
    attempt: CreateAttempt


async def _read(request: Request, app: AppContext, merchant: AuthenticatedMerchant) -> _Sent:
    key = read_idempotency_key(request.headers)
    if key is None:
        raise RefusedError(ErrorCode.BAD_REQUEST, "Idempotency-Key is required")
    body = await read_json(request, schemas.CREATE, app.service.settings.body_bytes_max)
    schemas.check_create(body)
    metadata = read_metadata(body.metadata, app.service.settings)
    attempt = _attempt(merchant.merchant_id, key, body, metadata)
    return _Sent(body, metadata.text, attempt)


async def _create(
    request: Request, app: AppContext, merchant: AuthenticatedMerchant
) -> CreatedPayment:
    sent = await _read(request, app, merchant)
    try:
        wanted = _accept(app, merchant, sent)
    except RefusedError:
        # A key that has a result is replayed, whatever these checks say by now.
        created = await replay_create(app.service.database, sent.attempt)
        if created is None:
            raise
        return created

    async def work() -> CreatedPayment:
        return await app.service.fraud_screening.create_payment(wanted)

    return await app.concurrent_creates.run_once(
        merchant.merchant_id, wanted.key, wanted.request_hash, work
    )


async def _replayed(
    request: Request,
    app: AppContext,
    merchant: AuthenticatedMerchant,
    exceeded: RateLimitExceededError,
) -> CreatedPayment:
    """Return the result of a key, for a merchant above its create limit."""
    try:
        await app.limiter.take_lookup(merchant)
    except RateLimitExceededError:
        raise exceeded from None
    sent = await _read(request, app, merchant)
    created = await replay_create(app.service.database, sent.attempt)
    if created is None:
        raise exceeded
    return created


def _pegged(body: schemas.CreatePaymentBody) -> bool:
    return True if body.include_pegged_assets is None else body.include_pegged_assets


def _accept(app: AppContext, merchant: AuthenticatedMerchant, sent: _Sent) -> CreatePaymentRequest:
    """Check currency, amount and country in the order that decides which error is returned."""
    body, settings, payable = sent.body, app.service.settings, merchant.payable
    require_in_service(merchant.activation)
    currencies.require_payable_currency(body.currency, payable, pegged=_pegged(body))
    text = schemas.amount_value(body.amount)
    amount = parse_amount(text, body.currency, settings.amount_min, settings.amount_max)
    schemas.check_held(amount, body.currency, payable)
    countries.require_supported_country_if_given(body.country)
    return CreatePaymentRequest(
        merchant_id=merchant.merchant_id,
        key=sent.attempt.key,
        request_hash=sent.attempt.request_hash,
        as_sent=sent.attempt.as_sent,
        expires_in_s=sent.attempt.expires_in_s,
        terms=PaymentTerms(
            currency=body.currency,
            amount=amount,
            amount_text=text,
            payer_uid=body.payer_uid,
            payer_email=body.payer_email,
            include_pegged_assets=_pegged(body),
            metadata=sent.metadata,
            tax_manager=merchant.tax_manager,
        ),
        country=body.country,
    )


def _attempt(
    merchant_id: int, key: UUID, body: schemas.CreatePaymentBody, metadata: Metadata
) -> CreateAttempt:
    amount = schemas.amount_value(body.amount)
    expires_in_s = body.expires_in or schemas.EXPIRES_IN_DEFAULT_S
    return CreateAttempt(
        merchant_id=merchant_id,
        key=key,
        request_hash=request_fingerprint(
            OPERATION,
            currency=body.currency,
            amount=trim_zeros(amount),
            payer_uid=body.payer_uid,
            payer_email=body.payer_email,
            expires_in=expires_in_s,
            country=body.country,
            include_pegged_assets=_pegged(body),
            metadata=metadata.canonical,
        ),
        as_sent=(
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
    )


def _created(app: AppContext, created: CreatedPayment) -> Response:
    fields = payment_fields(created.payment, None)
    base = app.service.settings.checkout_base
    if base:
        query = f"?country={created.country}" if created.country else ""
        fields["checkout_url"] = f"{base}/{created.payment.checkout_id}{query}"
    return json_response(fields, 201, REPLAYED if created.replayed else None)
