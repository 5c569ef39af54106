"""Logs of one endpoint that cannot be proven: set aside as cases, never credited.

The session that such a log names waits for its proof, as for a pending transfer, and the cursor
moves on for all others.
"""

from collections.abc import Mapping, Sequence

from prometheus_client import Counter

from payintent.domain.case import UNKNOWN_ORIGIN, CaseKind
from payintent.domain.evm import ContractLog, PaidLog
from payintent.domain.onchain import TransferDetails, is_exact_transfer
from payintent.log import get_logger
from payintent.storage import cases
from payintent.storage.cases import NewCase
from payintent.storage.database import Executor, Tx
from payintent.storage.onchain import pending_transfers, transfers
from payintent.storage.onchain.chains import DeployedContract
from payintent.storage.onchain.pending_transfers import PendingTransfer
from payintent.storage.onchain.transfers import NamedSession

#: Open cases of one chain. With more of them its endpoints are wrong, and nothing is read.
OPEN_MAX = 100

SET_ASIDE = Counter(
    "payintent_chain_set_aside_total", "Final logs that could not be proven", ["chain"]
)
_log = get_logger("set_aside")

_SUBJECT = "unproven log on"
Doubts = dict[ContractLog, str]  # logs, with the endpoint that told of each


async def has_room(database: Executor, chain: str, count: int) -> bool:
    """Tell whether so many more logs of a chain may be set aside."""
    if not count:
        return True
    if await cases.count_open(database, f"{_SUBJECT} {chain} ") + count <= OPEN_MAX:
        return True
    _log.error("set_aside_full", chain=chain, open_max=OPEN_MAX)
    return False


async def set_aside(
    tx: Tx, chain: str, doubts: Doubts, contracts: Mapping[bytes, DeployedContract]
) -> None:
    """Open a case for each log, and let the session that it names wait for its proof."""
    if not doubts:
        return
    paid = [log for log in doubts if isinstance(log, PaidLog)]
    named = (
        await transfers.find_named_sessions(tx, list({log.uuid for log in paid})) if paid else {}
    )
    sessions = {log: _session_of(log, named, contracts) for log in doubts}
    new_cases = {
        log: NewCase(
            id=tx.id_generator.new_id(),
            kind=CaseKind.RECONCILIATION,
            origin=session.origin if session else UNKNOWN_ORIGIN,
            subject=_subject(chain, log),
        )
        for log, session in sessions.items()
    }
    opened = await cases.open_cases(tx, list(new_cases.values()))
    for log, endpoint in doubts.items():
        if new_cases[log].id in opened:
            SET_ASIDE.labels(chain).inc()
            tx_hash = log.tx_hash.hex()
            _log.error("log_set_aside", chain=chain, tx=tx_hash, endpoint=endpoint)
    pending = [
        _pending_transfer(log, session, contracts)
        for log, session in sessions.items()
        if session is not None and isinstance(log, PaidLog)
    ]
    await pending_transfers.save_pending(tx, chain, pending)


async def settle_doubts(tx: Tx, chain: str, logs: Sequence[ContractLog]) -> None:
    """Close the cases of logs that are proven by now."""
    if logs:
        await cases.dismiss_proven(tx, [_subject(chain, log) for log in logs])


def _subject(chain: str, log: ContractLog) -> str:
    """Name a log, the same at every look."""
    return f"{_SUBJECT} {chain} 0x{log.tx_hash.hex()} {log.log_index}"


def _session_of(
    log: ContractLog,
    named: Mapping[bytes, NamedSession],
    contracts: Mapping[bytes, DeployedContract],
) -> NamedSession | None:
    name = named.get(log.uuid) if isinstance(log, PaidLog) else None
    if name is None or name.account_id != contracts[log.contract].account_id:
        return None
    return name


def _pending_transfer(
    log: PaidLog, name: NamedSession, contracts: Mapping[bytes, DeployedContract]
) -> PendingTransfer:
    paid = TransferDetails(contracts[log.contract].account_id, log.token, log.amount, log.receiver)
    return PendingTransfer(
        tx_hash=log.tx_hash,
        log_index=log.log_index,
        session_id=name.session_id,
        exact=name.expected is not None and is_exact_transfer(paid, name.expected),
        block=log.block_number,
    )
