"""Classifies and settles each final log exactly once.

Transfers are settled in the transaction that moves the cursor. Refund logs are only stored in that
transaction. Each refund log is settled later in a separate transaction, which locks the payment,
the capture and the refund, as every refund settlement does.
"""

import collections
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from prometheus_client import Counter

from payintent.cases.model import CaseKind
from payintent.cases.store import open_case
from payintent.chains.store import DeployedContract
from payintent.core import ids
from payintent.db.database import Database, Tx
from payintent.evm.port import PaidLog, RefundedLog, log_position
from payintent.gateways.port import GatewayRefundState, RefundReport
from payintent.onchain import refund_logs_store as refund_log_store
from payintent.onchain import transfers_store as transfer_store
from payintent.onchain.refund_logs_store import (
    ClassifiedRefundLog,
    NewRefundLog,
    RefundLogDisposition,
)
from payintent.onchain.settlement_rules import (
    TransferDetails,
    TransferDisposition,
    classify_transfer,
    decide_transfer,
)
from payintent.onchain.transfers_store import NewTransfer, ReferencedSession
from payintent.payment_sessions import store as settlement_store
from payintent.payment_sessions.settle import apply_settlements
from payintent.payment_sessions.store import Settlement
from payintent.payments.captures_store import UNKNOWN_ORIGIN, SettledCapture
from payintent.payments.model import Payment, Session
from payintent.refunds import store as refund_store
from payintent.refunds.settle import make_refund_origin, settle_refund
from payintent.runtime.id_generator import IdGenerator
from payintent.runtime.log import get_logger

_log = get_logger("chain_refunds")
_REFUND_LOGS_MAX = 500  # per pass
#: Dispositions of refund logs for money that was sent without a matching refund.
_ALARMING = {RefundLogDisposition.MISMATCHED, RefundLogDisposition.DUPLICATE}

REFUNDS = Counter(
    "payintent_chain_refunds_total",
    "Finalized refund logs by disposition",
    ["chain", "disposition"],
)


@dataclass(frozen=True, slots=True)
class _Batch:
    chain: str
    contracts: Mapping[bytes, DeployedContract]
    referenced: Mapping[bytes, ReferencedSession]  # by uuid
    payments: Mapping[UUID, Payment]  # locked, in their state before the batch
    sessions: Mapping[UUID, Session]
    now: datetime
    paid_ids: set[UUID]  # payments that earlier logs in the batch have paid


async def settle_transfers(
    tx: Tx, chain: str, logs: Sequence[PaidLog], contracts: Mapping[bytes, DeployedContract]
) -> collections.Counter[TransferDisposition]:
    """Settle final logs of `contracts` (by address) that are not stored yet.

    The cursor must be locked. Payments are locked next, and then their sessions.
    """
    new_logs = await transfer_store.filter_new(tx, chain, logs)
    if not new_logs:
        return collections.Counter()
    referenced = await transfer_store.find_referenced_sessions(tx, {log.uuid for log in new_logs})
    payment_ids = list({session.payment_id for session in referenced.values()})
    session_ids = [session.session_id for session in referenced.values()]
    records = await settlement_store.lock_records(tx, payment_ids, dict.fromkeys(session_ids))
    batch = _Batch(
        chain, contracts, referenced, records.payments, records.sessions, records.now, set()
    )
    new_transfers: list[NewTransfer] = []
    settlements: list[Settlement] = []
    for log in sorted(new_logs, key=log_position):
        transfer, settlement = _decide(batch, tx.id_generator, log)
        new_transfers.append(transfer)
        settlements.append(settlement)
        if settlement.decision.credited and settlement.payment:
            batch.paid_ids.add(settlement.payment.id)
    await transfer_store.add(tx, new_transfers, records.now)  # captures and cases reference them
    await apply_settlements(tx, settlements, records.now)
    return collections.Counter(transfer.disposition for transfer in new_transfers)


def _decide(
    batch: _Batch, id_generator: IdGenerator, log: PaidLog
) -> tuple[NewTransfer, Settlement]:
    account_id = batch.contracts[log.contract].account_id
    details = TransferDetails(account_id, log.token, log.amount, log.receiver)
    referenced = batch.referenced.get(log.uuid)
    payment = batch.payments[referenced.payment_id] if referenced else None
    if payment and payment.id in batch.paid_ids:
        payment = replace(payment, paid_at=batch.now)
    session = batch.sessions[referenced.session_id] if referenced else None
    expected = referenced.expected if referenced else None
    disposition = classify_transfer(details, expected, payment, session)
    if referenced is None or disposition is TransferDisposition.UNKNOWN_UUID:
        payment, session, origin = None, None, UNKNOWN_ORIGIN
    else:
        origin = referenced.origin
    transfer = NewTransfer(
        id=id_generator.new_id(),
        chain=batch.chain,
        account_id=account_id,
        log=log,
        origin=origin,
        disposition=disposition,
    )
    settlement = Settlement(
        decision=decide_transfer(disposition),
        origin=origin,
        payment=payment,
        session=session,
        capture=_build_capture(transfer, id_generator.new_id()),
        receipt_id=transfer.id,
        chain=transfer.chain,
        case_id=id_generator.new_id(),
    )
    return transfer, settlement


def _build_capture(transfer: NewTransfer, capture_id: UUID) -> SettledCapture | None:
    """Return a transfer's capture, or None if the money went to another receiver."""
    if transfer.disposition is TransferDisposition.WRONG_RECEIVER:
        return None
    log = transfer.log
    return SettledCapture(
        id=capture_id,
        account_id=transfer.account_id,
        reference=f"0x{log.tx_hash.hex()}:{log.log_index}",
        origin=transfer.origin,
        currency=f"0x{log.token.hex()}",
        amount_minor=log.amount,
        credited=transfer.disposition is TransferDisposition.CREDITED,
        receipt_id=transfer.id,
    )


async def store_refund_logs(
    tx: Tx, chain: str, logs: Sequence[RefundedLog], contracts: Mapping[bytes, DeployedContract]
) -> int:
    """Store final logs of `contracts` (by address). Returns the number of new logs."""
    new_logs = [
        NewRefundLog(
            id=tx.id_generator.new_id(), account_id=contracts[log.contract].account_id, log=log
        )
        for log in logs
    ]
    return await refund_log_store.add(tx, chain, new_logs)


async def settle_refund_logs(database: Database, chain: str) -> None:
    """Classify and apply stored logs. After a crash, the next call continues."""
    for log_id in await refund_log_store.list_unclassified(database, chain, _REFUND_LOGS_MAX):
        async with database.transaction() as tx:
            classified_log = await refund_log_store.lock(tx, log_id)
            if classified_log is None:
                continue
            await _apply_disposition(tx, classified_log)
            await refund_log_store.set_disposition(tx, log_id, classified_log)
        _report_disposition(chain, classified_log)


async def _apply_disposition(tx: Tx, classified_log: ClassifiedRefundLog) -> None:
    if classified_log.refund_id is None:
        return
    if classified_log.disposition is RefundLogDisposition.SETTLES:
        report = RefundReport(
            state=GatewayRefundState.DONE, reference=f"0x{classified_log.tx_hash.hex()}"
        )
        await settle_refund(tx, classified_log.refund_id, report)
    elif classified_log.disposition in _ALARMING:
        refund = await refund_store.get(tx, classified_log.refund_id)
        assert refund is not None  # noqa: S101 - refunds are never deleted
        await open_case(
            tx,
            CaseKind.RECONCILIATION,
            make_refund_origin(refund),
            capture_id=refund.capture_id,
            refund_id=refund.id,
        )


def _report_disposition(chain: str, classified_log: ClassifiedRefundLog) -> None:
    REFUNDS.labels(chain, classified_log.disposition.value).inc()
    if classified_log.disposition in _ALARMING and classified_log.refund_id is not None:
        _log.error(
            "refund_astray",
            chain=chain,
            refund=ids.format_id(ids.REFUND, classified_log.refund_id),
            tx=f"0x{classified_log.tx_hash.hex()}",
            what=classified_log.disposition.value,
        )
