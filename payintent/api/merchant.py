"""The merchant's routes: create, read and cancel a payment."""

from decimal import Decimal

from starlette.requests import Request
from starlette.responses import Response

from payintent.api import shapes
from payintent.api.body import idempotency_key, read_json
from payintent.api.context import Context, context, json_answer
from payintent.domain import ids
from payintent.domain.errors import Code, Refused
from payintent.domain.money import parse_amount
from payintent.lifecycle.cancel import cancel
from payintent.lifecycle.create import (
    OPERATION,
    Created,
    CreateRequest,
    create,
    replay,
    request_hash,
)
from payintent.lifecycle.views import payment_for
from payintent.lifecycle.wire import payment_fields
from payintent.storage.merchants import Holder

_REPLAYED = {"Idempotency-Replayed": "true"}


async def create_payment(request: Request) -> Response:
    """`POST /payments`."""
    here = context(request)
    holder = await here.authenticator.merchant(request.headers)
    key = idempotency_key(request.headers)
    if key is None:
        raise Refused(Code.BAD_REQUEST, "Idempotency-Key is required")
    body = await read_json(request, shapes.CREATE, here.service.settings.body_bytes_max)
    shapes.check_create(body)
    metadata = shapes.metadata_text(body.metadata, here.service.settings)
    fingerprint = _fingerprint(body, metadata)
    try:
        accepted = _accept(here, holder, body)
    except Refused:
        # A finished key replays, whatever these checks say by now.
        found = await replay(here.service.database, holder.merchant_id, key, fingerprint)
        if found is None:
            raise
        return _created(here, found)
    created = await create(
        here.service.database,
        here.service.mint,
        CreateRequest(
            merchant_id=holder.merchant_id,
            tax_manager=holder.tax_manager,
            key=key,
            request_hash=fingerprint,
            currency=body.currency,
            amount=accepted[0],
            amount_text=accepted[1],
            payer_uid=body.payer_uid,
            payer_email=body.payer_email,
            expires_in_s=body.expires_in or shapes.EXPIRES_IN_DEFAULT_S,
            country=body.country,
            metadata=metadata,
            include_pegged_assets=_pegged(body),
        ),
    )
    return _created(here, created)


async def get_payment(request: Request) -> Response:
    """`GET /payments/{payment_id}`."""
    here = context(request)
    holder = await here.authenticator.merchant(request.headers)
    payment_id = ids.parse(ids.PAYMENT, request.path_params["payment_id"])
    seen = await payment_for(
        here.service.database, here.service.mint, holder.merchant_id, payment_id
    )
    fields = payment_fields(seen.payment, seen.session)
    base = here.service.settings.checkout_base
    if base:
        fields["checkout_url"] = f"{base}/{seen.payment.checkout_id}"
    return json_answer(fields)


async def cancel_payment(request: Request) -> Response:
    """`POST /payments/{payment_id}/cancel`."""
    here = context(request)
    holder = await here.authenticator.merchant(request.headers)
    key = idempotency_key(request.headers)
    payment_id = ids.parse(ids.PAYMENT, request.path_params["payment_id"])
    seen = await payment_for(
        here.service.database, here.service.mint, holder.merchant_id, payment_id
    )
    async with here.service.database.transaction() as tx:
        fresh = await cancel(tx, here.service.mint, seen.payment, key)
    return json_answer({"status": "cancelled"}, headers=None if fresh else _REPLAYED)


def _pegged(body: shapes.CreateBody) -> bool:
    return True if body.include_pegged_assets is None else body.include_pegged_assets


def _accept(here: Context, holder: Holder, body: shapes.CreateBody) -> tuple[Decimal, str]:
    """Check currency, amount and country in the order that decides which refusal is told."""
    settings = here.service.settings
    shapes.check_currency(body.currency, holder.payable, pegged=_pegged(body))
    text = shapes.amount_value(body.amount)
    amount = parse_amount(text, body.currency, settings.amount_min, settings.amount_max)
    shapes.check_country(body.country)
    return amount, text


def _fingerprint(body: shapes.CreateBody, metadata: str) -> bytes:
    """Tell bodies apart by the known fields as sent; defaults are not filled in."""
    return request_hash(
        OPERATION,
        body.currency,
        shapes.amount_value(body.amount),
        body.payer_uid,
        body.payer_email,
        body.expires_in,
        body.country,
        body.include_pegged_assets,
        metadata,
    )


def _created(here: Context, created: Created) -> Response:
    fields = payment_fields(created.payment, None)
    base = here.service.settings.checkout_base
    if base:
        query = f"?country={created.country}" if created.country else ""
        fields["checkout_url"] = f"{base}/{created.payment.checkout_id}{query}"
    return json_answer(fields, 201, _REPLAYED if created.replayed else None)
