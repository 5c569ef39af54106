"""Operations that a merchant's members and servers run on the merchant's own data."""

from dataclasses import replace
from uuid import UUID

from payintent.domain.errors import NotFoundError
from payintent.domain.member import member_name
from payintent.operations.base import Actor, OperationContext, run
from payintent.operations.keys import RevokeApiKey
from payintent.operations.webhooks import ReplayedEvent, ReplayEvent
from payintent.storage import api_keys, merchant_events
from payintent.storage.api_keys import ApiKey


async def replay_own_event(
    context: OperationContext, merchant_id: int, actor: Actor, event_id: UUID
) -> ReplayedEvent:
    """Resend an event; raise `NOT_FOUND` unless it belongs to the merchant."""
    async with context.database.transaction() as tx:
        if await merchant_events.get(tx, merchant_id, event_id) is None:
            raise NotFoundError("no such event")
        return await run(replace(context, actor=actor), tx, ReplayEvent(event_id=event_id))


async def revoke_own_key(
    context: OperationContext, merchant_id: int, actor: Actor, public_id: str
) -> ApiKey:
    """Revoke an API key; raise `NOT_FOUND` unless it belongs to the merchant."""
    if not (public_id.isascii() and public_id.isalnum()):
        raise NotFoundError("no such key")
    async with context.database.transaction() as tx:
        if not await api_keys.is_key_of(tx, merchant_id, public_id):
            raise NotFoundError("no such key")
        return await run(replace(context, actor=actor), tx, RevokeApiKey(public_id=public_id))


def member_actor(merchant_id: int, email: str) -> Actor:
    """Return the actor of a member in the merchant portal."""
    return Actor(member_name(merchant_id, email), "in the merchant portal")


def key_actor(merchant_id: int, public_id: str) -> Actor:
    """Return the actor of a merchant's server, identified by its API key."""
    return Actor(f"merchant:{merchant_id}:{public_id}", "over the API")
