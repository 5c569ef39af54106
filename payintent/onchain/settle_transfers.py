"""Classifies, settles and stores each final transfer exactly once."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from payintent.chains.store import DeployedContract
from payintent.db.database import Tx
from payintent.evm.port import PaidLog, log_position
from payintent.onchain import transfers_store as transfer_store
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
from payintent.runtime.id_generator import IdGenerator


@dataclass(frozen=True, slots=True)
class _Batch:
    chain: str
    contracts: Mapping[bytes, DeployedContract]
    referenced: Mapping[bytes, ReferencedSession]  # by uuid
    payments: Mapping[UUID, Payment]  # locked, in their state before the batch
    sessions: Mapping[UUID, Session]
    now: datetime
    paid_ids: set[UUID]  # payments paid by earlier logs in the batch


async def settle_transfers(
    tx: Tx, chain: str, logs: Sequence[PaidLog], contracts: Mapping[bytes, DeployedContract]
) -> Counter[TransferDisposition]:
    """Settle final logs of `contracts` (by address) that are not stored yet.

    The cursor must be locked. Payments are locked next, and then their sessions.
    """
    new_logs = await transfer_store.pick_unknown(tx, chain, logs)
    if not new_logs:
        return Counter()
    referenced = await transfer_store.find_referenced_sessions(tx, {log.uuid for log in new_logs})
    payment_ids = list({session.payment_id for session in referenced.values()})
    session_ids = [session.session_id for session in referenced.values()]
    records = await settlement_store.lock_records(tx, payment_ids, dict.fromkeys(session_ids))
    batch = _Batch(
        chain, contracts, referenced, records.payments, records.sessions, records.now, set()
    )
    new_transfers: list[NewTransfer] = []
    decisions: list[Settlement] = []
    for log in sorted(new_logs, key=log_position):
        transfer, settlement = _decide(batch, tx.id_generator, log)
        new_transfers.append(transfer)
        decisions.append(settlement)
        if settlement.decision.credited and settlement.payment:
            batch.paid_ids.add(settlement.payment.id)
    await transfer_store.add(tx, new_transfers, records.now)  # captures and cases reference them
    await apply_settlements(tx, decisions, records.now)
    return Counter(transfer.disposition for transfer in new_transfers)


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
    """Return a transfer's capture; None if the money went to another receiver."""
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
