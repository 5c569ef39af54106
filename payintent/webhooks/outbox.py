"""The outbox that the dispatcher polls; it adds the decrypted signing secrets to deliveries."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from payintent.db.database import Database
from payintent.merchants import callback_secrets
from payintent.runtime.encryption import Encryption, EncryptionKeyError, callback_secret_context
from payintent.runtime.log import get_logger
from payintent.webhooks import endpoints_store as endpoint_store
from payintent.webhooks import outbox_store
from payintent.webhooks.model import CircuitReport, DeliveryResult, OutgoingDelivery

_log = get_logger("deliver")
#: High enough for all merchants, because the longest-waiting endpoints may not get any slots.
_MERCHANTS_MAX = 100_000
SECRETS_MAX = 3  # per delivery


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseOutbox:
    database: Database
    encryption: Encryption
    lease_s: float

    async def due_merchants(self) -> list[int]:
        return await outbox_store.list_due_merchants(self.database, _MERCHANTS_MAX)

    async def claim(self, limits: Sequence[tuple[int, int]]) -> list[OutgoingDelivery]:
        """Claim due deliveries; `limits` are `(merchant_id, limit)` pairs."""
        deliveries = await outbox_store.claim_due(self.database, limits, self.lease_s)
        keys = await self._decrypt_keys({delivery.merchant_id for delivery in deliveries})
        return [
            replace(delivery, secrets=keys[delivery.merchant_id])
            for delivery in deliveries
            if delivery.merchant_id in keys
        ]

    async def record(self, outcomes: Sequence[DeliveryResult]) -> None:
        await outbox_store.record(self.database, [self._to_record(result) for result in outcomes])

    async def release(self, merchant_id: int) -> None:
        """Make all of a merchant's delayed retries due now, when its endpoint has recovered."""
        while await outbox_store.release(self.database, merchant_id):
            pass

    async def store_circuits(self, reports: Sequence[CircuitReport]) -> None:
        """Store the latest change of each circuit for display to operators."""
        last_reports = {report.merchant_id: report for report in reports}
        for report in last_reports.values():
            if report.open_s > 0:
                await endpoint_store.open_circuit(self.database, report)
            else:
                await endpoint_store.close_circuit(self.database, report.merchant_id)

    async def _decrypt_keys(self, merchant_ids: set[int]) -> dict[int, list[bytes]]:
        """Decrypt signing keys. Merchants with an undecryptable key are logged and omitted."""
        if not merchant_ids:
            return {}
        sealed = await callback_secrets.list_secrets(self.database, list(merchant_ids), SECRETS_MAX)
        keys: dict[int, list[bytes]] = {}
        for merchant_id in merchant_ids:
            try:
                keys[merchant_id] = [
                    self.encryption.decrypt(
                        secret.sealed, callback_secret_context(merchant_id, secret.id)
                    )
                    for secret in sealed.get(merchant_id, [])
                ]
            except EncryptionKeyError as error:
                _log.error("secret_unusable", merchant=merchant_id, why=str(error))
        return keys

    def _to_record(self, result: DeliveryResult) -> outbox_store.AttemptRecord:
        attempt = result.attempt
        return outbox_store.AttemptRecord(
            id=self.database.id_generator.new_id(),
            event_id=result.delivery.event_id,
            number=result.delivery.attempts + 1,
            url=result.delivery.url,
            outcome=attempt.outcome,
            status=attempt.status,
            detail=attempt.detail,
            answer=attempt.answer,
            duration_ms=attempt.duration_ms,
            delivered=attempt.ok,
            next_wait_s=result.next_wait_s,
        )
