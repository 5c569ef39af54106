"""The endpoints of a chain side by side: how far each is, and whether they agree on a block."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from payintent.config import Settings
from payintent.domain.errors import ChainUnavailableError
from payintent.domain.evm import ChainHeads
from payintent.evm.chain_reader import RpcChainReader
from payintent.onchain.chain_checks import endpoint_fault
from payintent.onchain.watch_loop import open_configured_reader
from payintent.storage.onchain.chains import ChainRecord
from payintent.ttl_cache import TtlMap

_ANSWER_S = 2.0  # for the newest blocks, and again for the block that is compared
_KEPT_S = 10.0
_CHAINS_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointState:
    """What one endpoint shows; its name, never its address."""

    name: str
    latest: int | None
    latest_at: datetime | None
    final: int | None
    agrees: bool | None  # on the highest block that all call final; None: nothing to compare
    problem: str | None


class EndpointComparison:
    """Compares the endpoints of chains; an answer is kept for ten seconds, for all who look."""

    def __init__(self, settings: Settings, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._kept: TtlMap[str, list[EndpointState]] = TtlMap(_KEPT_S, _CHAINS_MAX, monotonic)
        self._under_way: dict[str, asyncio.Task[list[EndpointState]]] = {}

    async def compare(self, chain: ChainRecord) -> list[EndpointState]:
        """Compare the endpoints of a chain, within four seconds; empty where it has none."""
        if (kept := self._kept.get(chain.slug)) is not None:
            return kept
        task = self._under_way.get(chain.slug)
        if task is None:
            task = asyncio.create_task(self._compare(chain))
            self._under_way[chain.slug] = task
            task.add_done_callback(lambda _: self._under_way.pop(chain.slug, None))
        return await asyncio.shield(task)

    async def _compare(self, chain: ChainRecord) -> list[EndpointState]:
        if chain.slug not in self._settings.endpoints:
            return []
        reader = open_configured_reader(self._settings, chain)
        if reader is None:
            return []
        try:
            states = await compare_endpoints(reader)
        finally:
            await reader.close()
        self._kept.set(chain.slug, states)
        return states


async def compare_endpoints(reader: RpcChainReader) -> list[EndpointState]:
    """Ask all endpoints of a reader at once for their newest blocks, then for one final block."""
    names = sorted(reader.names)
    found = await asyncio.gather(*(_heads(reader, name) for name in names))
    heads = [head for head in found if isinstance(head, ChainHeads)]
    hashes = await _hashes_of_final(reader, heads)
    agreed = _most_common(list(hashes.values()))
    return [_state(name, head, hashes, agreed) for name, head in zip(names, found, strict=True)]


async def _heads(reader: RpcChainReader, name: str) -> ChainHeads | str:
    """Return an endpoint's newest blocks, or what is wrong with it."""
    try:
        async with asyncio.timeout(_ANSWER_S):
            return await reader.heads_of(name)
    except ChainUnavailableError as error:
        return endpoint_fault(name, error).removeprefix(f"{name} ")
    except TimeoutError:
        return "does not answer in time"


async def _hashes_of_final(reader: RpcChainReader, heads: Sequence[ChainHeads]) -> dict[str, bytes]:
    """Return, by endpoint, the hash of the highest block that all endpoints call final."""
    if len(heads) < 2:  # noqa: PLR2004 - one alone agrees with none
        return {}
    number = min(head.final.number for head in heads)

    async def read(head: ChainHeads) -> bytes | None:
        if head.final.number == number:
            return head.final.hash
        try:
            async with asyncio.timeout(_ANSWER_S):
                block = await reader.block(head.endpoint, number)
        except (ChainUnavailableError, TimeoutError):
            return None
        return block and block.hash

    hashes = await asyncio.gather(*(read(head) for head in heads))
    return {
        head.endpoint: block_hash
        for head, block_hash in zip(heads, hashes, strict=True)
        if block_hash is not None
    }


def _most_common(hashes: Sequence[bytes]) -> bytes | None:
    """Return the hash that most endpoints show; None where as many show another one."""
    counts = sorted((hashes.count(block_hash), block_hash) for block_hash in set(hashes))
    if not counts or (len(counts) > 1 and counts[-1][0] == counts[-2][0]):
        return None
    return counts[-1][1]


def _state(
    name: str, head: ChainHeads | str, hashes: dict[str, bytes], agreed: bytes | None
) -> EndpointState:
    if isinstance(head, str):
        return EndpointState(
            name=name, latest=None, latest_at=None, final=None, agrees=None, problem=head
        )
    return EndpointState(
        name=name,
        latest=head.latest.number,
        latest_at=head.latest.at,
        final=head.final.number,
        agrees=hashes[name] == agreed if name in hashes else None,
        problem=None,
    )
