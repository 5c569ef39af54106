"""Applies final `Refunded` logs: ours settle refunds, all others are only counted.

Logs are stored in the cursor's transaction and classified after it: each in a transaction of
its own, which locks one payment, its capture and its refund, like every settlement of a refund.
"""

from collections.abc import Mapping, Sequence
from uuid import UUID

from prometheus_client import Counter

from payintent.domain import ids
from payintent.domain.case import CaseKind
from payintent.domain.evm import RefundedLog
from payintent.domain.gateway import GatewayRefundState, RefundReport
from payintent.domain.onchain_refund import RefundLogDisposition
from payintent.log import get_logger
from payintent.payments.cases import open_case, refund_origin
from payintent.payments.settle_refund import settle_refund
from payintent.storage import refunds
from payintent.storage.database import Database, Tx
from payintent.storage.onchain import refund_logs
from payintent.storage.onchain.chains import DeployedContract
from payintent.storage.onchain.refund_logs import ClassifiedRefundLog, NewRefundLog

_log = get_logger("chain_refunds")
_CLASSIFIED_MAX = 500  # in one pass

REFUNDS = Counter(
    "payintent_chain_refunds_total",
    "Finalized refund logs by what they were",
    ["chain", "disposition"],
)


async def store_refund_logs(
    tx: Tx, chain: str, logs: Sequence[RefundedLog], contracts: Mapping[bytes, DeployedContract]
) -> int:
    """Store final logs of our contracts (by address), each once; returns how many were new."""
    fresh = [
        NewRefundLog(
            id=tx.id_generator.new_id(), account_id=contracts[log.contract].account_id, log=log
        )
        for log in logs
    ]
    return await refund_logs.add(tx, chain, fresh)


async def settle_refund_logs(database: Database, chain: str) -> None:
    """Classify stored logs that are not classified yet; after a crash the next call continues."""
    for log_id in await refund_logs.list_unclassified(database, chain, _CLASSIFIED_MAX):
        async with database.transaction() as tx:
            classified = await refund_logs.lock(tx, log_id)
            if classified is None:
                continue
            await _apply(tx, classified)
            await refund_logs.set_disposition(tx, log_id, classified)
        _report(chain, classified)


async def _apply(tx: Tx, classified: ClassifiedRefundLog) -> None:
    if classified.refund_id is None:
        return
    if classified.disposition is RefundLogDisposition.SETTLES:
        report = RefundReport(
            state=GatewayRefundState.DONE, reference=f"0x{classified.tx_hash.hex()}"
        )
        await settle_refund(tx, classified.refund_id, report)
    elif classified.disposition in _ALARMING:
        await _open_case(tx, classified.refund_id)


async def _open_case(tx: Tx, refund_id: UUID) -> None:
    """Let a person look: money of ours has gone where or as it should not."""
    refund = await refunds.get(tx, refund_id)
    assert refund is not None  # noqa: S101 - refunds are never deleted
    await open_case(
        tx,
        CaseKind.RECONCILIATION,
        refund_origin(refund),
        capture_id=refund.capture_id,
        refund_id=refund.id,
    )


_ALARMING = {RefundLogDisposition.MISMATCHED, RefundLogDisposition.TWICE}


def _report(chain: str, classified: ClassifiedRefundLog) -> None:
    REFUNDS.labels(chain, classified.disposition.value).inc()
    if classified.disposition in _ALARMING and classified.refund_id is not None:
        refund, tx_hash = (
            ids.format_id(ids.REFUND, classified.refund_id),
            f"0x{classified.tx_hash.hex()}",
        )
        what = classified.disposition.value
        _log.error("refund_astray", chain=chain, refund=refund, tx=tx_hash, what=what)
