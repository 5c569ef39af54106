"""Logs that one endpoint tells and that cannot be proven: set aside as cases, never credited.

The session that such a log names waits for its proof, as for a transfer that is not final, and the
cursor goes on for all others.
"""

from collections.abc import Mapping, Sequence

from prometheus_client import Counter

from payintent.domain.evm import ContractLog, PaidLog
from payintent.domain.onchain import TransferDetails, is_exact_transfer
from payintent.id_generator import IdGenerator
from payintent.log import get_logger
from payintent.storage.database import Executor, Tx
from payintent.storage.onchain import pending_transfers, transfers, unproven_transfers
from payintent.storage.onchain.chains import DeployedContract
from payintent.storage.onchain.pending_transfers import PendingTransfer
from payintent.storage.onchain.transfers import BilledSession
from payintent.storage.onchain.unproven_transfers import UnprovenCase

#: Open cases of one chain. With more of them its endpoints are wrong, and nothing is read.
OPEN_MAX = 100

SET_ASIDE = Counter(
    "payintent_chain_set_aside_total", "Final logs that could not be proven", ["chain"]
)
_log = get_logger("set_aside")

Doubts = dict[ContractLog, str]  # logs, with the endpoint that told of each


async def has_room(database: Executor, chain: str, count: int) -> bool:
    """Tell whether so many more logs of a chain may be set aside."""
    if not count:
        return True
    if await unproven_transfers.count_open(database, chain) + count <= OPEN_MAX:
        return True
    _log.error("set_aside_full", chain=chain, open_max=OPEN_MAX)
    return False


async def set_aside(
    tx: Tx,
    id_generator: IdGenerator,
    chain: str,
    doubts: Doubts,
    contracts: Mapping[bytes, DeployedContract],
) -> None:
    """Open a case for each log, and let the session that it names wait for its proof."""
    if not doubts:
        return
    paid = [log for log in doubts if isinstance(log, PaidLog)]
    named = (
        await transfers.find_billed_sessions(tx, list({log.uuid for log in paid})) if paid else {}
    )
    pending: list[PendingTransfer] = []
    for log, endpoint in doubts.items():
        name = _session_of(log, named, contracts)
        opened = await unproven_transfers.open_case(
            tx,
            UnprovenCase(
                id=id_generator.new_id(),
                chain=chain,
                tx_hash=log.tx_hash,
                log_index=log.log_index,
                session_id=name.session_id if name else None,
            ),
        )
        if opened:
            SET_ASIDE.labels(chain).inc()
            tx_hash = log.tx_hash.hex()
            _log.error("log_set_aside", chain=chain, tx=tx_hash, endpoint=endpoint)
        if name is not None and isinstance(log, PaidLog):
            pending.append(_sighting(log, name, contracts))
    await pending_transfers.save_pending(tx, chain, pending)


async def settle_doubts(tx: Tx, chain: str, logs: Sequence[ContractLog]) -> None:
    """Close the cases of logs that are proven after all."""
    if logs:
        await unproven_transfers.close_proven(
            tx, chain, [(log.tx_hash, log.log_index) for log in logs]
        )


def _session_of(
    log: ContractLog,
    named: Mapping[bytes, BilledSession],
    contracts: Mapping[bytes, DeployedContract],
) -> BilledSession | None:
    name = named.get(log.uuid) if isinstance(log, PaidLog) else None
    if name is None or name.account_id != contracts[log.contract].account_id:
        return None
    return name


def _sighting(
    log: PaidLog, name: BilledSession, contracts: Mapping[bytes, DeployedContract]
) -> PendingTransfer:
    paid = TransferDetails(contracts[log.contract].account_id, log.token, log.amount, log.receiver)
    return PendingTransfer(
        tx_hash=log.tx_hash,
        log_index=log.log_index,
        session_id=name.session_id,
        exact=name.bill is not None and is_exact_transfer(paid, name.bill),
        block=log.block_number,
    )
