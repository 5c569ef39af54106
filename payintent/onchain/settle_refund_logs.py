"""Settles refunds from final `Refunded` logs.

Logs are stored in the cursor's transaction and classified later. Each log has a separate
transaction, which locks the payment, the capture and the refund like every refund settlement.
"""

from collections.abc import Mapping, Sequence

from prometheus_client import Counter

from payintent.cases.model import CaseKind
from payintent.cases.store import open_case
from payintent.chains.store import DeployedContract
from payintent.core import ids
from payintent.db.database import Database, Tx
from payintent.evm.port import RefundedLog
from payintent.gateways.port import GatewayRefundState, RefundReport
from payintent.onchain import refund_logs_store as refund_log_store
from payintent.onchain.refund_logs_store import (
    ClassifiedRefundLog,
    NewRefundLog,
    RefundLogDisposition,
)
from payintent.refunds import store as refund_store
from payintent.refunds.settle import refund_origin, settle_refund
from payintent.runtime.log import get_logger

_log = get_logger("chain_refunds")
_CLASSIFIED_MAX = 500  # per pass
#: Money was sent without a matching refund.
_ALARMING = {RefundLogDisposition.MISMATCHED, RefundLogDisposition.DUPLICATE}

REFUNDS = Counter(
    "payintent_chain_refunds_total",
    "Finalized refund logs by disposition",
    ["chain", "disposition"],
)


async def store_refund_logs(
    tx: Tx, chain: str, logs: Sequence[RefundedLog], contracts: Mapping[bytes, DeployedContract]
) -> int:
    """Store final logs of `contracts` (by address); return the number of new logs."""
    new_logs = [
        NewRefundLog(
            id=tx.id_generator.new_id(), account_id=contracts[log.contract].account_id, log=log
        )
        for log in logs
    ]
    return await refund_log_store.add(tx, chain, new_logs)


async def settle_refund_logs(database: Database, chain: str) -> None:
    """Classify and apply stored logs. After a crash, the next call continues."""
    for log_id in await refund_log_store.list_unclassified(database, chain, _CLASSIFIED_MAX):
        async with database.transaction() as tx:
            classified = await refund_log_store.lock(tx, log_id)
            if classified is None:
                continue
            await _apply(tx, classified)
            await refund_log_store.set_disposition(tx, log_id, classified)
        _report_disposition(chain, classified)


async def _apply(tx: Tx, classified: ClassifiedRefundLog) -> None:
    if classified.refund_id is None:
        return
    if classified.disposition is RefundLogDisposition.SETTLES:
        report = RefundReport(
            state=GatewayRefundState.DONE, reference=f"0x{classified.tx_hash.hex()}"
        )
        await settle_refund(tx, classified.refund_id, report)
    elif classified.disposition in _ALARMING:
        refund = await refund_store.get(tx, classified.refund_id)
        assert refund is not None  # noqa: S101 - refunds are never deleted
        await open_case(
            tx,
            CaseKind.RECONCILIATION,
            refund_origin(refund),
            capture_id=refund.capture_id,
            refund_id=refund.id,
        )


def _report_disposition(chain: str, classified: ClassifiedRefundLog) -> None:
    REFUNDS.labels(chain, classified.disposition.value).inc()
    if classified.disposition in _ALARMING and classified.refund_id is not None:
        _log.error(
            "refund_astray",
            chain=chain,
            refund=ids.format_id(ids.REFUND, classified.refund_id),
            tx=f"0x{classified.tx_hash.hex()}",
            what=classified.disposition.value,
        )
