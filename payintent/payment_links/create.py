"""Create, read and deactivate payment links."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from payintent.core import ids
from payintent.core.errors import ErrorCode, NotFoundError, RefusedError
from payintent.core.money import CURRENCIES, format_amount
from payintent.db.database import Database, get_current_time
from payintent.merchants.access_store import AuthenticatedMerchant
from payintent.payment_links import store as link_store
from payintent.payment_links.model import LinkTerms, build_link_url
from payintent.payment_links.schemas import (
    CreateLinkBody,
    check_link_body,
    compute_link_fingerprint,
    read_link_terms,
)
from payintent.payment_links.store import LinkWithUses, NewPaymentLink
from payintent.payments.lookup import make_foreign_object_error
from payintent.runtime.json_format import format_timestamp
from payintent.runtime.settings import Settings


@dataclass(frozen=True, slots=True)
class CreatedLink:
    """A link created by this request, or by an earlier request with the same key."""

    stored: LinkWithUses
    replayed: bool


async def create_link(
    database: Database,
    settings: Settings,
    merchant: AuthenticatedMerchant,
    body: CreateLinkBody,
    key: UUID,
    created_by: str,
) -> CreatedLink:
    """Create a link, or return the link that was already created with this key.

    Raises `BAD_REQUEST` for malformed terms, `IDEMPOTENCY_CONFLICT` if the key was used with
    different terms, and the same errors as `POST /payments` for terms that are invalid for every
    payment.
    """
    check_link_body(body)
    request_hash = compute_link_fingerprint(body)
    existing = await _find_existing(database, merchant.merchant_id, key, request_hash)
    if existing is not None:
        return CreatedLink(existing, replayed=True)
    terms = read_link_terms(body, merchant, settings, await get_current_time(database))
    async with database.transaction() as tx:
        link_id = tx.id_generator.new_id()
        new_link = NewPaymentLink(
            id=link_id,
            merchant_id=merchant.merchant_id,
            token=tx.id_generator.new_link_token(),
            key=key,
            request_hash=request_hash,
            terms=terms,
            created_by=created_by,
        )
        is_new = await link_store.add(tx, new_link)
    stored = (
        await link_store.get(database, link_id)
        if is_new
        else await _find_existing(database, merchant.merchant_id, key, request_hash)
    )
    assert stored is not None  # noqa: S101 - links are never deleted
    return CreatedLink(stored, replayed=not is_new)


async def get_merchant_link(
    database: Database, merchant_id: int, link_id: UUID | None
) -> LinkWithUses:
    """Return a merchant's link.

    Raises `NOT_FOUND` if it does not exist, and `FORBIDDEN` if it belongs to another merchant.
    """
    stored = await link_store.get(database, link_id) if link_id else None
    if stored is None:
        raise NotFoundError("no such payment link")
    owner_id = stored.link.merchant_id
    if owner_id != merchant_id:
        raise await make_foreign_object_error(database, merchant_id, owner_id, "payment link")
    return stored


async def deactivate_link(
    database: Database, merchant_id: int, link_id: UUID | None, deactivated_by: str
) -> LinkWithUses:
    """Deactivate a merchant's link permanently. Payments that were already created stay open."""
    stored = await get_merchant_link(database, merchant_id, link_id)
    async with database.transaction() as tx:
        await link_store.deactivate(tx, stored.link.id, deactivated_by)
    return await get_merchant_link(database, merchant_id, stored.link.id)


def make_link_fields(stored: LinkWithUses, checkout_base: str) -> dict[str, Any]:
    """Return the API representation of a link, without empty fields."""
    link, terms = stored.link, stored.link.terms
    fields: dict[str, Any] = {
        "id": ids.format_id(ids.PAYMENT_LINK, link.id),
        "url": build_link_url(checkout_base, link.token),
        "status": stored.state,
        "title": terms.title,
        "description": terms.description,
        "order_id": terms.order_id,
        "currency": terms.currency,
        "amount": terms.amount_text,
        **_range_fields(terms),
        "max_uses": terms.max_uses,
        "uses": stored.uses,
        "expires_at": terms.expires_at and format_timestamp(terms.expires_at),
        "return_url": terms.return_url,
        "cancel_url": terms.cancel_url,
        "created_at": format_timestamp(link.created_at),
        "deactivated_at": link.deactivated_at and format_timestamp(link.deactivated_at),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _range_fields(terms: LinkTerms) -> dict[str, str]:
    currency = CURRENCIES[terms.currency]
    bounds = {"amount_min": terms.amount_range.minimum, "amount_max": terms.amount_range.maximum}
    return {
        name: format_amount(bound, currency.amount_decimals, trim=currency.is_crypto)
        for name, bound in bounds.items()
        if bound is not None
    }


async def _find_existing(
    database: Database, merchant_id: int, key: UUID, request_hash: bytes
) -> LinkWithUses | None:
    first_request = await link_store.find_first_request(database, merchant_id, key)
    if first_request is None:
        return None
    if first_request.request_hash != request_hash:
        raise RefusedError(
            ErrorCode.IDEMPOTENCY_CONFLICT, "the Idempotency-Key was used with a different request"
        )
    return await link_store.get(database, first_request.link_id)
