"""The outbox as deliverers see it: what is due, with the secrets to sign it."""

from collections.abc import Sequence
from dataclasses import dataclass

from payintent.domain.delivery import DeliveryResult, OutgoingDelivery
from payintent.encryption import Encryption, EncryptionKeyError, callback_secret_context
from payintent.id_generator import IdGenerator
from payintent.log import get_logger
from payintent.storage import merchants, outbox
from payintent.storage.database import Database

_log = get_logger("deliver")
_MERCHANTS_MAX = 2_000
SECRETS_MAX = 3  # that sign one delivery


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseOutbox:
    """Implements `Outbox` on the database."""

    database: Database
    secrets: Encryption
    id_generator: IdGenerator
    lease_s: float

    async def waiting(self) -> list[int]:
        """Name the merchants that have something due, the longest waiting first."""
        return await outbox.list_due_merchants(self.database, _MERCHANTS_MAX)

    async def take(self, rooms: Sequence[tuple[int, int]]) -> list[OutgoingDelivery]:
        """Take due deliveries, of each merchant at most its room."""
        taken = await outbox.claim_due(self.database, rooms, self.lease_s)
        keys = await self._keys_of({one.merchant_id for one in taken})
        return [
            OutgoingDelivery(
                event_id=one.event_id,
                merchant_id=one.merchant_id,
                attempts=one.attempts,
                url=one.callback_url or "",
                body=one.body.encode(),
                secrets=keys[one.merchant_id],
            )
            for one in taken
            if one.merchant_id in keys
        ]

    async def record(self, outcomes: Sequence[DeliveryResult]) -> None:
        """Keep attempts and what follows from them."""
        await outbox.record(self.database, [self._attempted(one) for one in outcomes])

    async def release(self, merchant_id: int) -> None:
        """Make everything of a merchant due now."""
        await outbox.release(self.database, merchant_id)

    async def _keys_of(self, merchant_ids: set[int]) -> dict[int, list[bytes]]:
        """Open merchants' secrets; one that cannot be opened holds up its own merchant alone."""
        keys: dict[int, list[bytes]] = {}
        for merchant_id in merchant_ids:
            try:
                keys[merchant_id] = await self._keys(merchant_id)
            except EncryptionKeyError as error:
                _log.error("secret_unusable", merchant=merchant_id, why=str(error))
        return keys

    async def _keys(self, merchant_id: int) -> list[bytes]:
        sealed = await merchants.list_secrets(self.database, merchant_id, SECRETS_MAX)
        return [
            self.secrets.open(one.sealed, callback_secret_context(merchant_id, one.id))
            for one in sealed
        ]

    def _attempted(self, one: DeliveryResult) -> outbox.AttemptRecord:
        return outbox.AttemptRecord(
            id=self.id_generator.id(),
            event_id=one.delivery.event_id,
            number=one.delivery.attempts + 1,
            outcome=one.outcome,
            status=one.status,
            detail=one.detail,
            answer=one.answer,
            duration_ms=one.duration_ms,
            delivered=one.delivered,
            next_wait_s=one.next_wait_s,
        )
