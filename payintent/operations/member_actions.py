"""Operations that members run in the merchant portal, on what is their merchant's own."""

from dataclasses import replace
from typing import TypeVar
from uuid import UUID

from payintent.domain.errors import ErrorCode, RefusedError
from payintent.domain.member import member_name
from payintent.operations.base import Actor, ChangeOperation, OperationContext, run
from payintent.operations.keys import RevokeApiKey
from payintent.operations.webhooks import ReplayedEvent, ReplayEvent
from payintent.storage import api_keys, merchant_events
from payintent.storage.api_keys import ApiKey
from payintent.storage.database import Tx

R = TypeVar("R")
_WHY = "in the merchant portal"


async def replay_own_event(
    context: OperationContext, merchant_id: int, email: str, event_id: UUID
) -> ReplayedEvent:
    """Send an event of the member's merchant again (`NOT_FOUND` where it has none of this id)."""
    async with context.database.transaction() as tx:
        if await merchant_events.get(tx, merchant_id, event_id) is None:
            raise RefusedError(ErrorCode.NOT_FOUND, "no such event")
        return await _run(context, tx, ReplayEvent(event_id=event_id), (merchant_id, email))


async def revoke_own_key(
    context: OperationContext, merchant_id: int, email: str, public_id: str
) -> ApiKey:
    """Revoke a key of the member's merchant (`NOT_FOUND` where it has none of this id)."""
    if not (public_id.isascii() and public_id.isalnum()):
        raise RefusedError(ErrorCode.NOT_FOUND, "no such key")
    async with context.database.transaction() as tx:
        if not await api_keys.is_key_of(tx, merchant_id, public_id):
            raise RefusedError(ErrorCode.NOT_FOUND, "no such key")
        return await _run(context, tx, RevokeApiKey(public_id=public_id), (merchant_id, email))


async def _run(
    context: OperationContext, tx: Tx, change: ChangeOperation[R], member: tuple[int, str]
) -> R:
    """Apply an operation as a member, who has no operator's role, with its audit entry."""
    return await run(replace(context, actor=Actor(member_name(*member), _WHY)), tx, change, {})
