"""The merchant's routes: create, read and cancel a payment; the catalog. Lists are next door."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response

from payintent.api import schemas
from payintent.api.context import Context, context, json_answer
from payintent.api.etag import tagged
from payintent.api.middleware import add_headers
from payintent.api.rate_limits import LimitExceeded
from payintent.api.request_body import idempotency_key, read_json
from payintent.api.surrogates import CREATE
from payintent.domain import ids
from payintent.domain.activation import refuse_out_of_service
from payintent.domain.errors import Code, Refused
from payintent.domain.fraud import Denied
from payintent.domain.money import parse_amount
from payintent.domain.rate_limit import RateClass
from payintent.payments.cancel import cancel
from payintent.payments.catalog import catalog_for
from payintent.payments.create import OPERATION, Created, CreateRequest, replay, request_hash
from payintent.payments.lookup import payment_for
from payintent.payments.serialization import payment_fields
from payintent.storage.merchants import Holder
from payintent.storage.payments import Seen

_REPLAYED = {"Idempotency-Replayed": "true"}


Handler = Callable[[Request], Awaitable[Response]]
Held = Callable[[Request, Context, Holder], Awaitable[Response]]


def for_merchants(handler: Held) -> Handler:
    """Let holders of a key in, spend one of their requests, and say so in the answer."""

    @wraps(handler)
    async def answered(request: Request) -> Response:
        here = context(request)
        holder = await here.authenticator.merchant(request)
        await _spend(request, here, holder, RateClass.READ)
        return await handler(request, here, holder)

    return answered


async def create_payment(request: Request) -> Response:
    """`POST /payments`: spends the create limit; a replay, the other one.

    Beyond its limit a merchant still gets what a key has done, as often as its look-ups allow.
    """
    here = context(request)
    holder = await here.authenticator.merchant(request)
    try:
        await _spend(request, here, holder, RateClass.CREATE)
    except LimitExceeded as exceeded:
        created = await _replayed(request, here, holder, exceeded)
    else:
        try:
            created = await _create(request, here, holder)
        except Denied as denied:
            if denied.replayed:
                await _spend_as_read(request, here, holder)
            raise
        if created.replayed:
            await _spend_as_read(request, here, holder)
    return _created(here, created)


@for_merchants
async def get_payment(request: Request, here: Context, holder: Holder) -> Response:
    """`GET /payments/{payment_id}`."""
    payment_id = ids.parse(ids.PAYMENT, request.path_params["payment_id"])
    seen = await payment_for(
        here.service.database, here.service.mint, holder.merchant_id, payment_id
    )
    return json_answer(shown(here, seen))


@for_merchants
async def get_catalog(request: Request, here: Context, holder: Holder) -> Response:
    """`GET /catalog`: what the merchant can be paid with, where."""
    service = here.service
    viewer = here.edge.viewer_country(request)
    catalog = await catalog_for(
        service.database, service.accounts, service.policies, holder.merchant_id, viewer
    )
    headers = {
        "Cache-Control": "private, max-age=300",
        "Vary": f"Authorization, {service.settings.edge_country_header}",
    }
    return tagged(request, catalog.body, catalog.etag, headers)


@for_merchants
async def cancel_payment(request: Request, here: Context, holder: Holder) -> Response:
    """`POST /payments/{payment_id}/cancel`."""
    key = idempotency_key(request.headers)
    payment_id = ids.parse(ids.PAYMENT, request.path_params["payment_id"])
    seen = await payment_for(
        here.service.database, here.service.mint, holder.merchant_id, payment_id
    )
    async with here.service.database.transaction() as tx:
        fresh = await cancel(tx, here.service.mint, seen.payment, key)
    return json_answer({"status": "cancelled"}, headers=None if fresh else _REPLAYED)


def shown(here: Context, seen: Seen) -> dict[str, Any]:
    """Give a payment as its merchant sees it; its `checkout_url` carries no query any more."""
    fields = payment_fields(seen.payment, seen.session)
    base = here.service.settings.checkout_base
    if base:
        fields["checkout_url"] = f"{base}/{seen.payment.checkout_id}"
    return fields


async def _spend(request: Request, here: Context, holder: Holder, kind: RateClass) -> None:
    """Spend one of a merchant's requests, and say in the answer where the merchant stands."""
    try:
        headers = await here.limiter.spend(holder, kind)
    except LimitExceeded as exceeded:
        add_headers(request.scope, exceeded.headers)
        raise
    add_headers(request.scope, headers)


async def _spend_as_read(request: Request, here: Context, holder: Holder) -> None:
    here.limiter.give_back(holder, RateClass.CREATE)
    await _spend(request, here, holder, RateClass.READ)


@dataclass(frozen=True, slots=True)
class _Sent:
    """A create as it was sent: its shape is right, its values were not looked at."""

    key: UUID
    body: schemas.CreateBody
    metadata: str
    fingerprint: bytes


async def _read(request: Request, here: Context) -> _Sent:
    key = idempotency_key(request.headers)
    if key is None:
        raise Refused(Code.BAD_REQUEST, "Idempotency-Key is required")
    body = await read_json(request, CREATE, here.service.settings.body_bytes_max)
    schemas.check_create(body)
    metadata = schemas.metadata_text(body.metadata, here.service.settings)
    return _Sent(key, body, metadata, _fingerprint(body, metadata))


async def _create(request: Request, here: Context, holder: Holder) -> Created:
    sent = await _read(request, here)
    try:
        wanted = _accept(here, holder, sent)
    except Refused:
        # A finished key replays, whatever these checks say by now.
        found = await _find(here, holder, sent)
        if found is None:
            raise
        return found

    async def work() -> Created:
        return await here.service.screen.create(wanted)

    return await here.replays.once(holder.merchant_id, sent.key, sent.fingerprint, work)


async def _replayed(
    request: Request, here: Context, holder: Holder, exceeded: LimitExceeded
) -> Created:
    """Find what a key did, for a merchant that may create nothing just now."""
    try:
        await here.limiter.spend_lookup(holder)
    except LimitExceeded:
        raise exceeded from None
    found = await _find(here, holder, await _read(request, here))
    if found is None:
        raise exceeded
    return found


async def _find(here: Context, holder: Holder, sent: _Sent) -> Created | None:
    return await replay(here.service.database, holder.merchant_id, sent.key, sent.fingerprint)


def _pegged(body: schemas.CreateBody) -> bool:
    return True if body.include_pegged_assets is None else body.include_pegged_assets


def _accept(here: Context, holder: Holder, sent: _Sent) -> CreateRequest:
    """Check currency, amount and country in the order that decides which refusal is told."""
    body, settings, payable = sent.body, here.service.settings, holder.payable
    refuse_out_of_service(holder.activation)
    schemas.check_currency(body.currency, payable, pegged=_pegged(body))
    text = schemas.amount_value(body.amount)
    amount = parse_amount(text, body.currency, settings.amount_min, settings.amount_max)
    schemas.check_held(amount, body.currency, payable)
    schemas.check_country(body.country)
    return CreateRequest(
        merchant_id=holder.merchant_id,
        tax_manager=holder.tax_manager,
        key=sent.key,
        request_hash=sent.fingerprint,
        currency=body.currency,
        amount=amount,
        amount_text=text,
        payer_uid=body.payer_uid,
        payer_email=body.payer_email,
        expires_in_s=body.expires_in or schemas.EXPIRES_IN_DEFAULT_S,
        country=body.country,
        metadata=sent.metadata,
        include_pegged_assets=_pegged(body),
    )


def _fingerprint(body: schemas.CreateBody, metadata: str) -> bytes:
    """Tell bodies apart by the known fields as sent; defaults are not filled in."""
    return request_hash(
        OPERATION,
        body.currency,
        schemas.amount_value(body.amount),
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
