"""The outbox as the dispatcher uses it: due deliveries, with the secrets to sign them."""

from collections.abc import Sequence
from dataclasses import dataclass

from payintent.domain.delivery import CircuitReport, DeliveryResult, OutgoingDelivery
from payintent.encryption import Encryption, EncryptionKeyError, callback_secret_context
from payintent.log import get_logger
from payintent.storage import callback_secrets, endpoint_outages, outbox
from payintent.storage.callback_secrets import CallbackSecretRecord
from payintent.storage.database import Database

_log = get_logger("deliver")
#: All of them: those that wait longest are those that do not answer, and get no place.
_MERCHANTS_MAX = 100_000
SECRETS_MAX = 3  # that sign one delivery


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseOutbox:
    database: Database
    encryption: Encryption
    lease_s: float

    async def due_merchants(self) -> list[int]:
        return await outbox.list_due_merchants(self.database, _MERCHANTS_MAX)

    async def claim(self, limits: Sequence[tuple[int, int]]) -> list[OutgoingDelivery]:
        taken = await outbox.claim_due(self.database, limits, self.lease_s)
        keys = await self._keys_of({delivery.merchant_id for delivery in taken})
        return [
            OutgoingDelivery(
                event_id=delivery.event_id,
                payment_id=delivery.payment_id,
                merchant_id=delivery.merchant_id,
                attempts=delivery.attempts,
                url=delivery.callback_url or "",
                body=delivery.body.encode(),
                secrets=keys[delivery.merchant_id],
            )
            for delivery in taken
            if delivery.merchant_id in keys
        ]

    async def record(self, outcomes: Sequence[DeliveryResult]) -> None:
        await outbox.record(self.database, [self._attempted(result) for result in outcomes])

    async def release(self, merchant_id: int) -> None:
        while await outbox.release(self.database, merchant_id):
            pass

    async def show_circuits(self, reports: Sequence[CircuitReport]) -> None:
        """Store the last report of each merchant."""
        for report in {report.merchant_id: report for report in reports}.values():
            if report.open_s > 0:
                await endpoint_outages.open_circuit(self.database, report)
            else:
                await endpoint_outages.close_circuit(self.database, report.merchant_id)

    async def _keys_of(self, merchant_ids: set[int]) -> dict[int, list[bytes]]:
        """Decrypt merchants' secrets; one that cannot be decrypted delays only its own merchant."""
        if not merchant_ids:
            return {}
        sealed = await callback_secrets.list_secrets(self.database, list(merchant_ids), SECRETS_MAX)
        keys: dict[int, list[bytes]] = {}
        for merchant_id in merchant_ids:
            try:
                keys[merchant_id] = self._keys(merchant_id, sealed.get(merchant_id, []))
            except EncryptionKeyError as error:
                _log.error("secret_unusable", merchant=merchant_id, why=str(error))
        return keys

    def _keys(self, merchant_id: int, sealed: Sequence[CallbackSecretRecord]) -> list[bytes]:
        return [
            self.encryption.decrypt(secret.sealed, callback_secret_context(merchant_id, secret.id))
            for secret in sealed
        ]

    def _attempted(self, result: DeliveryResult) -> outbox.AttemptRecord:
        return outbox.AttemptRecord(
            id=self.database.id_generator.new_id(),
            event_id=result.delivery.event_id,
            number=result.delivery.attempts + 1,
            url=result.delivery.url,
            outcome=result.outcome,
            status=result.status,
            detail=result.detail,
            answer=result.answer,
            duration_ms=result.duration_ms,
            delivered=result.delivered,
            next_wait_s=result.next_wait_s,
        )
