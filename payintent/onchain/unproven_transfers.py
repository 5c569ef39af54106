"""Logs that only their supplier reports: they are set aside as cases and never credited.

The session of such a log waits for its proof, as for a pending transfer, while the cursor moves on.
"""

from collections.abc import Mapping, Sequence

from prometheus_client import Counter, Gauge

from payintent.cases import store as case_store
from payintent.cases.model import CaseKind
from payintent.cases.store import NewCase
from payintent.chains.store import ChainRecord, DeployedContract
from payintent.core import ids
from payintent.db.database import Database, Executor, Tx
from payintent.evm.port import ContractLog, PaidLog
from payintent.onchain import pending_store as pending_transfers
from payintent.onchain import transfers_store as transfer_store
from payintent.onchain.model import OUTAGE_MAX, TransferDetails, is_exact_transfer
from payintent.onchain.pending_store import PendingTransfer
from payintent.onchain.transfers_store import ReferencedSession
from payintent.payment_sessions.inquire import hand_over_to_operator
from payintent.payments.captures_store import UNKNOWN_ORIGIN
from payintent.runtime.log import get_logger

#: Open cases per chain. More cases mean that its endpoints are wrong, so reading stops.
OPEN_MAX = 100

SET_ASIDE = Counter(
    "payintent_chain_set_aside_total", "Final logs that could not be proven", ["chain"]
)
_log = get_logger("set_aside")

_SUBJECT = "unproven log on"
DisputedLogs = dict[ContractLog, str]  # with the endpoint that reported each log


async def has_room(database: Executor, chain: str, count: int) -> bool:
    """Return whether `count` more logs of a chain may be set aside."""
    if not count:
        return True
    if await case_store.count_open(database, f"{_SUBJECT} {chain} ") + count <= OPEN_MAX:
        return True
    _log.error("set_aside_full", chain=chain, open_max=OPEN_MAX)
    return False


async def set_aside(
    tx: Tx, chain: str, logs: DisputedLogs, contracts: Mapping[bytes, DeployedContract]
) -> None:
    """Open a case for each log, and let the session of the log wait for its proof."""
    if not logs:
        return
    uuids = {log.uuid for log in logs if isinstance(log, PaidLog)}
    referenced = await transfer_store.find_referenced_sessions(tx, uuids) if uuids else {}
    sessions = {
        log: match_session(log, referenced, contracts) if isinstance(log, PaidLog) else None
        for log in logs
    }
    new_cases = {
        log: NewCase(
            id=tx.id_generator.new_id(),
            kind=CaseKind.RECONCILIATION,
            origin=session.origin if session else UNKNOWN_ORIGIN,
            subject=_subject(chain, log),
        )
        for log, session in sessions.items()
    }
    opened_ids = await case_store.open_cases(tx, list(new_cases.values()))
    for log, endpoint in logs.items():
        if new_cases[log].id in opened_ids:
            SET_ASIDE.labels(chain).inc()
            tx_hash = log.tx_hash.hex()
            _log.error("log_set_aside", chain=chain, tx=tx_hash, endpoint=endpoint)
    pending = [
        build_pending_transfer(log, session)
        for log, session in sessions.items()
        if session is not None and isinstance(log, PaidLog)
    ]
    await pending_transfers.save_pending(tx, chain, pending)


async def close_proven_cases(tx: Tx, chain: str, logs: Sequence[ContractLog]) -> None:
    if logs:
        await case_store.dismiss_proven(tx, [_subject(chain, log) for log in logs])


def _subject(chain: str, log: ContractLog) -> str:
    return f"{_SUBJECT} {chain} 0x{log.tx_hash.hex()} {log.log_index}"


def match_session(
    log: PaidLog,
    referenced: Mapping[bytes, ReferencedSession],
    contracts: Mapping[bytes, DeployedContract],
) -> ReferencedSession | None:
    """Return the log's session, unless the log comes from another account's contract."""
    session = referenced.get(log.uuid)
    if session is None or session.account_id != contracts[log.contract].account_id:
        return None
    return session


def build_pending_transfer(log: PaidLog, session: ReferencedSession) -> PendingTransfer:
    details = TransferDetails(session.account_id, log.token, log.amount, log.receiver)
    return PendingTransfer(
        tx_hash=log.tx_hash,
        log_index=log.log_index,
        session_id=session.session_id,
        exact=session.expected is not None and is_exact_transfer(details, session.expected),
        block=log.block_number,
    )


_overdue_log = get_logger("overdue")
_OVERDUE_MAX = 100

OVERDUE = Gauge(
    "payintent_chain_overdue", "Payments that were seen but are not final in time", ["chain"]
)


async def report_overdue_transfers(database: Database, chain: ChainRecord) -> None:
    """Report payments that are not final within the chain's grace time; they never fail."""
    overdue = await pending_transfers.list_overdue(
        database, chain.slug, chain.grace_s, _OVERDUE_MAX
    )
    OVERDUE.labels(chain.slug).set(len(overdue))
    for transfer in overdue:
        if transfer.late_s >= OUTAGE_MAX.total_seconds() and not transfer.has_case:
            session = ids.format_id(ids.SESSION, transfer.session_id)
            _overdue_log.error(
                "payment_not_final", chain=chain.slug, session=session, late_s=transfer.late_s
            )
            await hand_over_to_operator(database, transfer.payment_id, transfer.session_id)
