"""Operations that a merchant's members and servers run, on what is their merchant's own."""

from dataclasses import replace
from typing import TypeVar
from uuid import UUID

from payintent.domain.errors import NotFoundError
from payintent.domain.member import member_name
from payintent.operations.base import Actor, ChangeOperation, OperationContext, run
from payintent.operations.keys import RevokeApiKey
from payintent.operations.webhooks import ReplayedEvent, ReplayEvent
from payintent.storage import api_keys, merchant_events
from payintent.storage.api_keys import ApiKey
from payintent.storage.database import Tx

R = TypeVar("R")


async def replay_own_event(
    context: OperationContext, merchant_id: int, actor: Actor, event_id: UUID
) -> ReplayedEvent:
    """Send an event of the actor's merchant again (`NOT_FOUND` if it has none of this id)."""
    async with context.database.transaction() as tx:
        if await merchant_events.get(tx, merchant_id, event_id) is None:
            raise NotFoundError("no such event")
        return await _run(context, tx, ReplayEvent(event_id=event_id), actor)


async def revoke_own_key(
    context: OperationContext, merchant_id: int, actor: Actor, public_id: str
) -> ApiKey:
    """Revoke a key of the actor's merchant (`NOT_FOUND` if it has none of this id)."""
    if not (public_id.isascii() and public_id.isalnum()):
        raise NotFoundError("no such key")
    async with context.database.transaction() as tx:
        if not await api_keys.is_key_of(tx, merchant_id, public_id):
            raise NotFoundError("no such key")
        return await _run(context, tx, RevokeApiKey(public_id=public_id), actor)


def member_actor(merchant_id: int, email: str) -> Actor:
    """Return a member as the audit log names them."""
    return Actor(member_name(merchant_id, email), "in the merchant portal")


def key_actor(merchant_id: int, public_id: str) -> Actor:
    """Return a merchant's server as the audit log names it, by its API key."""
    return Actor(f"merchant:{merchant_id}:{public_id}", "over the API")


async def _run(context: OperationContext, tx: Tx, change: ChangeOperation[R], actor: Actor) -> R:
    """Apply an operation as one of the merchant's, who has no operator's role; it is audited."""
    return await run(replace(context, actor=actor), tx, change, {})
