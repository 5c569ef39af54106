"""The outbox as deliverers see it: what is due, with the secrets to sign it."""

from collections.abc import Sequence
from dataclasses import dataclass

from payintent.domain.delivery import Outcome, Parcel
from payintent.encryption import Secrets, SecretsUnusable, secret_place
from payintent.id_generator import Mint
from payintent.log import get
from payintent.storage import merchants, outbox
from payintent.storage.database import Database

_log = get("deliver")
_MERCHANTS_MAX = 2_000
SECRETS_MAX = 3  # that sign one delivery


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryDesk:
    """Implements `Outbox` on the database."""

    database: Database
    secrets: Secrets
    mint: Mint
    lease_s: float

    async def waiting(self) -> list[int]:
        """Name the merchants that have something due, the longest waiting first."""
        return await outbox.due_merchants(self.database, _MERCHANTS_MAX)

    async def take(self, rooms: Sequence[tuple[int, int]]) -> list[Parcel]:
        """Take due parcels, of each merchant at most its room."""
        taken = await outbox.take(self.database, rooms, self.lease_s)
        keys = await self._keys_of({one.merchant_id for one in taken})
        return [
            Parcel(
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

    async def record(self, outcomes: Sequence[Outcome]) -> None:
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
            except SecretsUnusable as error:
                _log.error("secret_unusable", merchant=merchant_id, why=str(error))
        return keys

    async def _keys(self, merchant_id: int) -> list[bytes]:
        sealed = await merchants.secrets_of(self.database, merchant_id, SECRETS_MAX)
        return [self.secrets.open(one.sealed, secret_place(merchant_id, one.id)) for one in sealed]

    def _attempted(self, one: Outcome) -> outbox.Attempted:
        return outbox.Attempted(
            id=self.mint.id(),
            event_id=one.parcel.event_id,
            number=one.parcel.attempts + 1,
            outcome=one.outcome,
            status=one.status,
            detail=one.detail,
            answer=one.answer,
            duration_ms=one.duration_ms,
            delivered=one.delivered,
            next_wait_s=one.next_wait_s,
        )
