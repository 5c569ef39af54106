"""Setup for the client tests: names, a clock, payments, and nodes with scripted responses."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from payintent.evm.chain_reader import ReaderConfig, RpcChainReader
from payintent.evm.port import LogBatch
from tests.onchain.contract.contract_setup import Ground
from tests.support.http_server import clean_up

NETWORK = 612_055
CHAIN = "native"
NODE = "native-1"  # the first endpoint's name
CONFIG = ReaderConfig(network_id=NETWORK)
AMOUNT = 25_500_000
HASH = "0x" + 64 * "a"
BLOCK = {"number": "0x0", "hash": HASH, "parentHash": HASH, "timestamp": "0x6a000000"}

Respond = Callable[[list[dict[str, Any]]], web.Response | list[Any] | dict[str, Any]]


@dataclass
class Clock:
    """A clock that only the test advances."""

    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


def raw(address: str) -> bytes:
    return bytes.fromhex(address[2:])


def make_payments(ground: Ground, count: int) -> list[bytes]:
    """Make this many payments, each in its own block, and return their uuids."""
    bills = [number.to_bytes(16, "big") for number in range(1, count + 1)]
    for bill in bills:
        ground.pay(ground.usdt, AMOUNT, bill=bill)
    return bills


def height(ground: Ground) -> int:
    return int(ground.evm.ask("eth_blockNumber"), 16)


async def search(
    reader: RpcChainReader, ground: Ground, start: int, end: int, before: int | None = None
) -> LogBatch:
    return await reader.search_logs(NODE, start, end, [raw(ground.gateway.address)], before)


@asynccontextmanager
async def scripted_reader(
    respond: Respond, *, config: ReaderConfig = CONFIG
) -> AsyncIterator[RpcChainReader]:
    """A reader of a node that identifies itself and then responds with `respond`."""

    async def answer(request: web.Request) -> web.StreamResponse:
        payload = json.loads(await request.read())
        calls = payload if isinstance(payload, list) else [payload]
        if calls[0]["method"] == "eth_chainId":
            return web.json_response(make_result(calls[0], hex(NETWORK)))
        response = respond(calls)
        return response if isinstance(response, web.Response) else web.json_response(response)

    app = web.Application()
    app.router.add_post("/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    reader = RpcChainReader(CHAIN, [f"http://127.0.0.1:{runner.addresses[0][1]}/"], config)
    try:
        yield reader
    finally:
        await reader.close()
        await clean_up(runner)


def make_result(call: dict[str, Any], result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": call["id"], "result": result}


def make_error(call: dict[str, Any] | None, message: str, **fields: Any) -> dict[str, Any]:
    error = {"code": -32_000, "message": message} | fields
    return {"jsonrpc": "2.0", "id": call["id"] if call else None, "error": error}
