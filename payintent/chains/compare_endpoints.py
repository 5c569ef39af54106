"""Compare the newest blocks that a chain's endpoints return."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from payintent.chains.checks import describe_endpoint_fault, open_configured_reader
from payintent.chains.store import ChainRecord
from payintent.core.errors import ChainUnavailableError
from payintent.evm.chain_reader import RpcChainReader
from payintent.evm.port import ChainHeads
from payintent.runtime.caches import TtlMap
from payintent.runtime.settings import Settings

_REQUEST_TIMEOUT_S = 2.0  # for the newest blocks, and again for the block to compare
_CACHE_S = 10.0
_CHAINS_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointStatus:
    """An endpoint's newest blocks. Endpoints are identified by name, never by URL."""

    name: str
    latest: int | None
    latest_at: datetime | None
    final: int | None
    agrees: bool | None  # on the highest common final block; None if there is nothing to compare
    problem: str | None


class EndpointComparison:
    """Compares chain endpoints and caches the results for ten seconds."""

    def __init__(self, settings: Settings, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._cache: TtlMap[str, list[EndpointStatus]] = TtlMap(_CACHE_S, _CHAINS_MAX, monotonic)
        self._tasks: dict[str, asyncio.Task[list[EndpointStatus]]] = {}

    async def compare(self, chain: ChainRecord) -> list[EndpointStatus]:
        """Compare a chain's endpoints within four seconds. Return [] if the chain has none."""
        if (statuses := self._cache.get(chain.slug)) is not None:
            return statuses
        task = self._tasks.get(chain.slug)
        if task is None:
            task = asyncio.create_task(self._compare(chain))
            self._tasks[chain.slug] = task
            task.add_done_callback(lambda _: self._tasks.pop(chain.slug, None))
        return await asyncio.shield(task)

    async def _compare(self, chain: ChainRecord) -> list[EndpointStatus]:
        if chain.slug not in self._settings.endpoints:
            return []
        reader = open_configured_reader(self._settings, chain)
        if reader is None:
            return []
        try:
            statuses = await compare_endpoints(reader)
        finally:
            await reader.close()
        self._cache.set(chain.slug, statuses)
        return statuses


async def compare_endpoints(reader: RpcChainReader) -> list[EndpointStatus]:
    """Query all endpoints concurrently for the newest blocks, then compare a common final block."""
    names = sorted(reader.names)
    results = await asyncio.gather(*(_fetch_heads(reader, name) for name in names))
    heads = [head for head in results if isinstance(head, ChainHeads)]
    hashes = await _fetch_final_hashes(reader, heads)
    majority = _find_majority_hash(list(hashes.values()))
    return [
        _build_status(name, head, hashes, majority)
        for name, head in zip(names, results, strict=True)
    ]


async def _fetch_heads(reader: RpcChainReader, name: str) -> ChainHeads | str:
    """Return an endpoint's newest blocks, or a description of the problem."""
    try:
        async with asyncio.timeout(_REQUEST_TIMEOUT_S):
            return await reader.fetch_endpoint_heads(name)
    except ChainUnavailableError as error:
        return describe_endpoint_fault(name, error).removeprefix(f"{name} ")
    except TimeoutError:
        return "does not respond in time"


async def _fetch_final_hashes(
    reader: RpcChainReader, heads: Sequence[ChainHeads]
) -> dict[str, bytes]:
    """Return each endpoint's hash of the highest common final block."""
    if len(heads) < 2:  # noqa: PLR2004 - a comparison needs two endpoints
        return {}
    number = min(head.final.number for head in heads)

    async def fetch_hash(head: ChainHeads) -> bytes | None:
        if head.final.number == number:
            return head.final.hash
        try:
            async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                block = await reader.fetch_block(head.endpoint, number)
        except (ChainUnavailableError, TimeoutError):
            return None
        return block and block.hash

    hashes = await asyncio.gather(*(fetch_hash(head) for head in heads))
    return {
        head.endpoint: block_hash
        for head, block_hash in zip(heads, hashes, strict=True)
        if block_hash is not None
    }


def _find_majority_hash(hashes: Sequence[bytes]) -> bytes | None:
    """Return the most frequent hash, or None if there is a tie."""
    counts = sorted((hashes.count(block_hash), block_hash) for block_hash in set(hashes))
    if not counts or (len(counts) > 1 and counts[-1][0] == counts[-2][0]):
        return None
    return counts[-1][1]


def _build_status(
    name: str, heads: ChainHeads | str, hashes: dict[str, bytes], majority: bytes | None
) -> EndpointStatus:
    if isinstance(heads, str):
        return EndpointStatus(
            name=name, latest=None, latest_at=None, final=None, agrees=None, problem=heads
        )
    return EndpointStatus(
        name=name,
        latest=heads.latest.number,
        latest_at=heads.latest.at,
        final=heads.final.number,
        agrees=hashes[name] == majority if name in hashes else None,
        problem=None,
    )
