"""The comparison of a chain's endpoints: lagging, differing and unresponsive endpoints."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from aiohttp import web

from payintent.chains import compare_endpoints as module
from payintent.chains.compare_endpoints import EndpointStatus, compare_endpoints
from payintent.evm.chain_reader import ReaderConfig, RpcChainReader
from tests.support.http_server import clean_up

NETWORK = 56
HASH, OTHER = "0x" + "1" * 64, "0x" + "2" * 64


@dataclass
class Node:
    """A node with these heads; all its blocks have the same hash."""

    latest: int = 110
    final: int = 100
    block_hash: str = HASH
    network: int = NETWORK
    request_count: int = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        calls = await request.json()
        self.request_count += 1
        batch = calls if isinstance(calls, list) else [calls]
        results = [self._answer(call) for call in batch]
        return web.json_response(results if isinstance(calls, list) else results[0])

    def _answer(self, call: dict[str, Any]) -> dict[str, Any]:
        result: Any = hex(self.network)
        if call["method"] == "eth_getBlockByNumber":
            tags = {"latest": self.latest, "finalized": self.final}
            tag = call["params"][0]
            number = tags[tag] if tag in tags else int(tag, 16)
            result = {"number": hex(number), "hash": self.block_hash, "parentHash": HASH}
            result["timestamp"] = hex(1_790_000_000 + number)
        return {"jsonrpc": "2.0", "id": call["id"], "result": result}


@asynccontextmanager
async def serving(node: Node) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/", node.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await clean_up(runner)


@asynccontextmanager
async def reading(nodes: Sequence[Node], *more: str) -> AsyncIterator[RpcChainReader]:
    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(serving(node)) for node in nodes]
        reader = RpcChainReader("bsc", [*urls, *more], ReaderConfig(network_id=NETWORK))
        try:
            yield reader
        finally:
            await reader.close()


async def compare(*nodes: Node) -> list[EndpointStatus]:
    async with reading(nodes) as reader:
        return await compare_endpoints(reader)


async def test_endpoints_are_compared_at_the_highest_common_final_block() -> None:
    first, second = await compare(Node(latest=120, final=105), Node(latest=110, final=100))
    assert (first.name, first.latest, first.final, first.agrees) == ("bsc-1", 120, 105, True)
    assert (second.name, second.latest, second.final, second.agrees) == ("bsc-2", 110, 100, True)


async def test_an_endpoint_with_a_different_block_disagrees() -> None:
    states = await compare(Node(), Node(block_hash=OTHER), Node())
    assert [state.agrees for state in states] == [True, False, True]


async def test_neither_endpoint_agrees_if_two_endpoints_differ() -> None:
    states = await compare(Node(), Node(block_hash=OTHER))
    assert [state.agrees for state in states] == [False, False]


async def test_agreement_is_unknown_for_a_single_endpoint() -> None:
    [state] = await compare(Node())
    assert (state.agrees, state.problem) == (None, None)


async def test_endpoint_problems_are_reported_without_delay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_REQUEST_TIMEOUT_S", 60.0)
    async with reading([Node(), Node(network=1)], "http://127.0.0.1:1/key") as reader:
        states = await compare_endpoints(reader)
    assert [state.problem for state in states] == [
        None,
        "serves a different chain",
        "cannot be reached",
    ]
    assert states[0].latest == 110
