"""Finalized receipts take their effect: judged, credited, kept, each exactly once."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID

from payintent.domain.case import UNKNOWN_ORIGIN
from payintent.domain.evm import PaidLog
from payintent.domain.onchain import CASES, TransferDetails, TransferDisposition, classify_transfer
from payintent.domain.payment import Payment, PaymentTrigger
from payintent.domain.session import Session
from payintent.id_generator import IdGenerator
from payintent.payments.create_refund import auto_refund_case
from payintent.payments.transitions import TransitionRequest, apply_transitions, lock_payments
from payintent.storage import cases, payments
from payintent.storage.cases import NewCase
from payintent.storage.database import Tx
from payintent.storage.onchain import chains, transfers
from payintent.storage.onchain.chains import DeployedContract
from payintent.storage.onchain.transfers import (
    BilledSession,
    NewTransfer,
    NewTransferCapture,
)

_OUTCOME = "captured"


@dataclass(slots=True)
class _Batch:
    """What one transaction judges, and what it will write."""

    payments: dict[UUID, Payment]
    sessions: dict[UUID, Session]
    named: Mapping[bytes, BilledSession]
    contracts: Mapping[bytes, DeployedContract]
    symbols: Mapping[bytes, str]  # of the chain's tokens
    at: datetime
    credited: set[UUID] = field(default_factory=set[UUID])  # payments
    requests: list[TransitionRequest] = field(default_factory=list[TransitionRequest])
    receipts: list[NewTransfer] = field(default_factory=list[NewTransfer])
    captures: list[NewTransferCapture] = field(default_factory=list[NewTransferCapture])
    cases: list[NewCase] = field(default_factory=list[NewCase])


async def settle_transfers(
    tx: Tx,
    id_generator: IdGenerator,
    chain: str,
    logs: Sequence[PaidLog],
    contracts: Mapping[bytes, DeployedContract],
) -> Counter[TransferDisposition]:
    """Judge finalized logs of our contracts (by address) and write what follows from them.

    Logs that were kept before change nothing. The caller has locked the cursor; then payments are
    locked, then their sessions.
    """
    before = await transfers.list_known(tx, chain, logs)
    fresh = [log for log in logs if (log.tx_hash, log.log_index) not in before]
    if not fresh:
        return Counter()
    batch = await _read(tx, chain, fresh, contracts)
    for log in sorted(fresh, key=lambda log: (log.block_number, log.log_index)):
        _judge(batch, id_generator, log)
    await apply_transitions(tx, batch.requests, id_generator)
    await transfers.add(tx, chain, batch.receipts, batch.at)
    await transfers.add_captures(tx, batch.captures, batch.at)
    await _keep_cases(tx, id_generator, batch)
    credited = [move.session.id for move in batch.requests if move.session]
    await transfers.end_sessions(tx, credited, _OUTCOME, batch.at)
    return Counter(transfer.disposition for transfer in batch.receipts)


async def _keep_cases(tx: Tx, id_generator: IdGenerator, batch: _Batch) -> None:
    """Fill the cases that wait for this money, open the others, and give back what goes back."""
    filled = await cases.fill_undecided(tx, batch.cases)
    await cases.open_cases(tx, [case for case in batch.cases if case.id not in filled])
    for case in batch.cases:
        if case.capture_id is not None:
            case_id, merchant_id = filled.get(case.id, case.id), case.origin.merchant_id
            await auto_refund_case(
                tx, id_generator, case.kind, case_id, case.capture_id, merchant_id
            )


async def _read(
    tx: Tx, chain: str, logs: Sequence[PaidLog], contracts: Mapping[bytes, DeployedContract]
) -> _Batch:
    tokens = await chains.list_tokens(tx, chain)
    named = await transfers.find_billed_sessions(tx, list({log.uuid for log in logs}))
    found: list[Payment] = []
    if named:
        locked = await lock_payments(tx, list({billed.payment_id for billed in named.values()}))
        found, at = locked.payments, locked.now
    else:
        at = await payments.now(tx)
    sessions = await transfers.lock_sessions(tx, [billed.session_id for billed in named.values()])
    return _Batch(
        payments={payment.id: payment for payment in found},
        sessions={session.id: session for session in sessions},
        named=named,
        contracts=contracts,
        symbols={token.address: token.symbol for token in tokens if token.address is not None},
        at=at,
    )


def _judge(batch: _Batch, id_generator: IdGenerator, log: PaidLog) -> None:
    contract = batch.contracts[log.contract]
    name = batch.named.get(log.uuid)
    paid = TransferDetails(contract.account_id, log.token, log.amount, log.receiver)
    payment = _payment_of(batch, name) if name else None
    session = batch.sessions[name.session_id] if name else None
    disposition = classify_transfer(paid, name.bill if name else None, payment, session)
    ours = disposition is not TransferDisposition.UNKNOWN_UUID and session is not None
    receipt = NewTransfer(
        id=id_generator.new_id(),
        account_id=contract.account_id,
        log=log,
        session_id=session.id if ours and session else None,
        disposition=disposition,
    )
    batch.receipts.append(receipt)
    capture_id = None
    if disposition is not TransferDisposition.WRONG_RECEIVER:  # that money is not ours to give back
        capture_id = id_generator.new_id()
        _capture(batch, receipt, capture_id, payment if ours else None, session)
    if disposition in CASES:
        batch.cases.append(
            NewCase(
                id=id_generator.new_id(),
                kind=CASES[disposition],
                origin=name.origin if ours and name else UNKNOWN_ORIGIN,
                receipt_id=receipt.id,
                capture_id=capture_id,
                opened_at=batch.at,
            )
        )


def _payment_of(batch: _Batch, name: BilledSession) -> Payment:
    """Give a log's payment; what this transaction has credited already is found paid."""
    payment = batch.payments[name.payment_id]
    return replace(payment, paid_at=batch.at) if payment.id in batch.credited else payment


def _capture(
    batch: _Batch,
    receipt: NewTransfer,
    capture_id: UUID,
    payment: Payment | None,
    session: Session | None,
) -> None:
    credited = receipt.disposition is TransferDisposition.CREDITED
    batch.captures.append(
        NewTransferCapture(
            id=capture_id,
            receipt=receipt,
            payment_id=payment.id if payment else None,
            currency=batch.symbols.get(receipt.log.token, f"0x{receipt.log.token.hex()}"),
            credited=credited,
        )
    )
    if credited and payment:
        batch.requests.append(
            TransitionRequest(
                payment=payment, trigger=PaymentTrigger.CONFIRM, at=batch.at, session=session
            )
        )
        batch.credited.add(payment.id)
