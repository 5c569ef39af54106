"""Logs that one endpoint tells and that cannot be proven: set aside as cases, never credited.

The session that such a log names waits for its proof, as for a transfer that is not final, and the
cursor goes on for all others.
"""

from collections.abc import Mapping, Sequence

from prometheus_client import Counter

from payintent.domain.evm import Log, PaidLog
from payintent.domain.onchain import Paid, is_exact
from payintent.id_generator import Mint
from payintent.log import get
from payintent.storage.database import Executor, Tx
from payintent.storage.onchain import pending_transfers, transfers, unproven_transfers
from payintent.storage.onchain.chains import ContractRow
from payintent.storage.onchain.pending_transfers import Sighting
from payintent.storage.onchain.transfers import Named
from payintent.storage.onchain.unproven_transfers import UnprovenCase

#: Open cases of one chain. With more of them its endpoints are wrong, and nothing is read.
OPEN_MAX = 100

SET_ASIDE = Counter(
    "payintent_chain_set_aside_total", "Final logs that could not be proven", ["chain"]
)
_log = get("set_aside")

Doubts = dict[Log, str]  # logs, with the endpoint that told of each


async def has_room(database: Executor, chain: str, count: int) -> bool:
    """Tell whether so many more logs of a chain may be set aside."""
    if not count:
        return True
    if await unproven_transfers.count_open(database, chain) + count <= OPEN_MAX:
        return True
    _log.error("set_aside_full", chain=chain, open_max=OPEN_MAX)
    return False


async def set_aside(
    tx: Tx, mint: Mint, chain: str, doubts: Doubts, contracts: Mapping[bytes, ContractRow]
) -> None:
    """Open a case for each log, and let the session that it names wait for its proof."""
    if not doubts:
        return
    paid = [log for log in doubts if isinstance(log, PaidLog)]
    named = await transfers.named(tx, list({log.uuid for log in paid})) if paid else {}
    seen: list[Sighting] = []
    for log, endpoint in doubts.items():
        name = _session_of(log, named, contracts)
        opened = await unproven_transfers.open_case(
            tx,
            UnprovenCase(
                id=mint.id(),
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
            seen.append(_sighting(log, name, contracts))
    await pending_transfers.sight(tx, chain, seen)


async def settle_doubts(tx: Tx, chain: str, logs: Sequence[Log]) -> None:
    """Close the cases of logs that are proven after all."""
    if logs:
        await unproven_transfers.close_proven(
            tx, chain, [(log.tx_hash, log.log_index) for log in logs]
        )


def _session_of(
    log: Log, named: Mapping[bytes, Named], contracts: Mapping[bytes, ContractRow]
) -> Named | None:
    name = named.get(log.uuid) if isinstance(log, PaidLog) else None
    if name is None or name.account_id != contracts[log.contract].account_id:
        return None
    return name


def _sighting(log: PaidLog, name: Named, contracts: Mapping[bytes, ContractRow]) -> Sighting:
    paid = Paid(contracts[log.contract].account_id, log.token, log.amount, log.receiver)
    return Sighting(
        tx_hash=log.tx_hash,
        log_index=log.log_index,
        session_id=name.session_id,
        exact=name.bill is not None and is_exact(paid, name.bill),
        block=log.block_number,
    )
