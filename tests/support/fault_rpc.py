"""A node with configurable faults: JSON-RPC on a real socket, in front of a real node.

    async with FaultyNode(anvil.url, seed=7) as node:
        node.faults = Faults(lag=3, drop_logs=0.3, range_max=5)
        ...  # ask node.url
        node.faults = replace(node.faults, broken=0.2)   # faults can be combined and changed
        node.faults = Faults(off=True)                   # unreachable
        node.faults = Faults()                           # no faults
        node.faults = Faults(forge_logs=1.0)
        assert node.done["forged"]                       # how often it has injected each fault

Probabilities are from 0 to 1. The random numbers depend on the seed and the order of the requests.
A lagging node is consistent: latest, finalized, searches, receipts and calls all end at the same
block. Forged logs appear only in searches, and have no receipts.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Any, Self

import aiohttp
from aiohttp import web

from tests.support.http_server import clean_up

CLOSE_S = 0.0  # requests that hang are cut off
LIMIT_EXCEEDED = -32_005


class Breakage(StrEnum):
    """Invalid or missing responses."""

    THROTTLED = "throttled"  # HTTP 429
    BAD_GATEWAY = "bad_gateway"  # HTTP 502 with an HTML page
    HTML = "html"  # HTTP 200 with an HTML page
    GARBAGE = "garbage"  # truncated JSON
    WRONG_IDS = "wrong_ids"
    EMPTY = "empty"  # an empty batch
    WRONG_TYPES = "wrong_types"  # numbers instead of strings
    CUT = "cut"  # the connection is closed without a response
    HANG = "hang"  # no response


ALL = tuple(item for item in Breakage if item is not Breakage.HANG)  # the faults without a delay


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """The faults of a node, which can be combined."""

    off: bool = False  # connections are closed without a response
    broken: float = 0.0  # the probability that a request gets a broken response
    breakages: Sequence[Breakage] = ALL  # the possible kinds of broken responses
    lag: int = 0  # blocks behind its upstream
    drop_logs: float = 0.0  # the probability that a log is missing from a search
    forge_logs: float = 0.0  # the probability that a search returns a forged log
    range_max: int | None = None  # maximum number of blocks in a search; otherwise a JSON-RPC error
    topics_max: int | None = (
        None  # maximum number at a position of a search; otherwise a JSON-RPC error
    )
    topics_text: str = "exceed max addresses or topics per search position"
    batch_max: int | None = None  # maximum number of calls; otherwise a JSON-RPC error
    null_blocks: float = 0.0  # the probability that a block is unknown
    null_receipts: float = 0.0  # also of transactions, and of each log in a single block
    hidden: Collection[str] = ()  # transactions whose logs never appear in searches
    invented: Sequence[dict[str, Any]] = ()  # logs that appear in every matching search
    refused_blocks: Collection[str] = ()  # block hashes for which a search is a JSON-RPC error
    empty_calls: bool = False  # every contract call returns only zeros
    large_receipts: bool = False  # receipts are too large: a JSON-RPC error
    network_id: int | None = None  # differs from the upstream's
    finalized_is_latest: bool = False
    no_finalized: bool = False  # the tag is a JSON-RPC error


class FaultyNode:
    """A node in front of `upstream`, in this event loop. `faults` may be set at any time."""

    def __init__(self, upstream: str, *, seed: int = 0, faults: Faults = Faults()) -> None:
        self.faults = faults
        self.asked: Counter[str] = Counter()  # calls by method
        self.done: Counter[str] = Counter()  # faults: breakages, "dropped", "forged", "refused" …
        self.requests = 0
        self._upstream = upstream
        self._chance = random.Random(seed)
        self._closing = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self._client: aiohttp.ClientSession | None = None
        self._port = 0

    @property
    def url(self) -> str:
        """Return the node's URL. Tests search logs for its path, as if it were a key."""
        return f"http://127.0.0.1:{self._port}/v3/a-key-that-is-secret"

    async def __aenter__(self) -> Self:
        self._client = aiohttp.ClientSession()
        app = web.Application(client_max_size=16 * 1024 * 1024)
        app.router.add_post("/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=CLOSE_S)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        [(_, self._port)] = [address[:2] for address in self._runner.addresses]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closing.set()
        assert self._runner
        assert self._client
        await clean_up(self._runner)
        await self._client.close()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        calls = asked if isinstance(asked, list) else [asked]
        self.requests += 1
        self.asked.update(call["method"] for call in calls)
        if self.faults.off:
            return self._cut(request)
        told: Any = None
        if self._happens(self.faults.broken):
            breakage = self._chance.choice(list(self.faults.breakages))
            self.done[breakage] += 1
            if (response := await self._broken(breakage, request)) is not None:
                return response
            told = self._twisted(breakage, await self._told(calls))
        elif self.faults.batch_max is not None and len(calls) > self.faults.batch_max:
            self.done["refused_batch"] += 1
            return web.json_response(_error(None, "the batch is too large"))
        told = await self._told(calls) if told is None else told
        return web.json_response(told if isinstance(asked, list) else (told or [None])[0])

    async def _broken(self, breakage: Breakage, request: web.Request) -> web.Response | None:
        """Return a broken response, or None if it must be derived from the true response."""
        if breakage is Breakage.HANG:
            await self._closing.wait()
        if breakage in {Breakage.HANG, Breakage.CUT}:
            return self._cut(request)
        if breakage in _PAGES:
            status, text = _PAGES[breakage]
            return web.Response(status=status, text=text)
        return None

    def _twisted(self, breakage: Breakage, responses: list[dict[str, Any]]) -> list[dict[str, Any]]:
        match breakage:
            case Breakage.EMPTY:
                return []
            case Breakage.WRONG_IDS:
                return [{**item, "id": item["id"] + 1_000_000} for item in responses]
            case _:
                return [{**item, "result": 7} for item in responses]

    def _cut(self, request: web.Request) -> web.Response:
        if request.transport is not None:
            request.transport.abort()
        return web.Response()

    async def _told(self, calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return this node's responses, derived from the upstream's responses to adjusted calls."""
        head, final = await self._heads()
        resolved_calls = [_as_of(call, head, final) for call in calls]
        responses = await self._ask([item for item in resolved_calls if item is not None])
        answers = {item["id"]: item for item in responses}
        return [
            await self._said(call, answers.get(call["id"]), head)
            if (refusal := self._topics_refusal(call) or self._refusal(call)) is None
            else refusal
            for call in calls
        ]

    async def _heads(self) -> tuple[int, int]:
        """Return the latest and the latest finalized block that this node knows."""
        tags = ("latest", "finalized")
        calls = [
            _call(number, "eth_getBlockByNumber", tag, False) for number, tag in enumerate(tags)
        ]
        latest, final = [int(item["result"]["number"], 16) for item in await self._ask(calls)]
        head = max(0, latest - self.faults.lag)
        if self.faults.finalized_is_latest:
            return head, head
        return head, max(0, final - self.faults.lag)

    def _refusal(self, call: dict[str, Any]) -> dict[str, Any] | None:
        method, params = call["method"], call["params"]
        if method == "eth_getTransactionReceipt" and self.faults.large_receipts:
            self.done["large_receipt"] += 1
            return _error(call["id"], "the response is too large")
        if method == "eth_getLogs" and "blockHash" in params[0]:
            if params[0]["blockHash"] not in self.faults.refused_blocks:
                return None
            self.done["refused_block"] += 1
            return _error(call["id"], "the request failed")
        if method == "eth_getLogs" and self.faults.range_max is not None:
            span = int(params[0]["toBlock"], 16) - int(params[0]["fromBlock"], 16) + 1
            if span > self.faults.range_max:
                self.done["refused"] += 1
                return _error(call["id"], f"ranges over {self.faults.range_max} blocks are limited")
        if self.faults.no_finalized and params[:1] == ["finalized"]:
            return _error(call["id"], "unknown tag")
        return None

    def _topics_refusal(self, call: dict[str, Any]) -> dict[str, Any] | None:
        """Reject a search with too many topics as geth does, even for a single block."""
        topics_max = self.faults.topics_max
        if topics_max is None or call["method"] != "eth_getLogs":
            return None
        if all(len(topic or []) <= topics_max for topic in call["params"][0]["topics"]):
            return None
        self.done["refused_topics"] += 1
        return _error(call["id"], self.faults.topics_text)

    async def _said(
        self, call: dict[str, Any], answer: dict[str, Any] | None, head: int
    ) -> dict[str, Any]:
        """Adjust a response to this node's faults and latest block."""
        if answer is not None and "error" in answer:
            return answer
        result = (answer or {}).get("result")
        if call["method"] == "eth_call" and self.faults.empty_calls:
            result = f"0x{0:064x}"
        elif call["method"] == "eth_getLogs":
            result = await self._searched(call["params"][0], result or [], head)
        elif result is not None:
            result = self._result(call["method"], result, head)
        return {"jsonrpc": "2.0", "id": call["id"], "result": result}

    def _result(self, method: str, result: Any, head: int) -> Any:
        match method:
            case "eth_chainId" if self.faults.network_id is not None:
                return hex(self.faults.network_id)
            case "eth_blockNumber":
                return hex(head)
            case "eth_getBlockByNumber" if self._happens(self.faults.null_blocks):
                return self._done("null_block", None)
            case "eth_getTransactionReceipt" | "eth_getTransactionByHash" if self._happens(
                self.faults.null_receipts
            ):
                return self._done("null_receipt", None)
            case "eth_getTransactionReceipt" | "eth_getTransactionByHash":
                return result if int(result["blockNumber"] or "0x0", 16) <= head else None
            case _:
                return result

    async def _searched(
        self, search: dict[str, Any], logs: list[dict[str, Any]], head: int
    ) -> list[dict[str, Any]]:
        logs = [log for log in logs if log["transactionHash"] not in self.faults.hidden]
        logs += [item for item in self.faults.invented if _matches(search, item)]
        if "blockHash" in search:
            return [log for log in logs if not self._happens(self.faults.null_receipts)]
        remaining_logs = [log for log in logs if not self._happens(self.faults.drop_logs)]
        self.done["dropped"] += len(logs) - len(remaining_logs)
        if int(search["fromBlock"], 16) <= head and self._happens(self.faults.forge_logs):
            remaining_logs.append(self._done("forged", await self._forged(search, logs, head)))
        return remaining_logs

    async def _forged(
        self, search: dict[str, Any], logs: list[dict[str, Any]], head: int
    ) -> dict[str, Any]:
        """Forge a log in a real block, so that only its missing receipt reveals the forgery."""
        start, end = int(search["fromBlock"], 16), int(search["toBlock"], 16)
        number = self._chance.randint(start, min(end, head))
        call = _call(1, "eth_getBlockByNumber", hex(number), False)
        [block] = await self._ask([call])
        pattern = self._chance.choice(logs) if logs else _invented(search)
        uuid = pattern["topics"][1] if self._chance.random() < 0.5 else self._hex(16) + 32 * "0"
        amount = f"{self._chance.randrange(1, 2**80):064x}"
        return {
            **pattern,
            "topics": [pattern["topics"][0], uuid, *pattern["topics"][2:]],
            "data": f"0x{amount}{pattern['data'][66:]}",
            "blockNumber": hex(number),
            "blockHash": block["result"]["hash"],
            "transactionHash": self._hex(32),
            "logIndex": hex(self._chance.randrange(1_000, 2_000)),
        }

    async def _ask(self, calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Call the upstream, which has no faults."""
        if not calls:
            return []
        assert self._client
        async with self._client.post(self._upstream, json=calls) as response:
            return await response.json()

    def _happens(self, chance: float) -> bool:
        return chance > 0 and self._chance.random() < chance

    def _done(self, name: str, result: Any) -> Any:
        self.done[name] += 1
        return result

    def _hex(self, size: int) -> str:
        return f"0x{self._chance.randbytes(size).hex()}"


_PAGES = {
    Breakage.THROTTLED: (429, "slow down"),
    Breakage.BAD_GATEWAY: (502, "<html>Bad Gateway"),
    Breakage.HTML: (200, "<html>Welcome"),
    Breakage.GARBAGE: (200, '[{"jsonrpc":"2.0","id":'),
}


def _call(number: int, method: str, *params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def _error(number: int | None, message: str) -> dict[str, Any]:
    error = {"code": LIMIT_EXCEEDED, "message": message}
    return {"jsonrpc": "2.0", "id": number, "error": error}


_PLACES = {"eth_getBlockByNumber": 0, "eth_call": 1, "eth_getBalance": 1, "eth_getCode": 1}


def _as_of(call: dict[str, Any], head: int, final: int) -> dict[str, Any] | None:
    """Adjust a call for the upstream; return None if it concerns blocks unknown to this node."""
    method, params = call["method"], list(call["params"])
    if method == "eth_blockNumber":
        return {**call, "method": "eth_getBlockByNumber", "params": [hex(head), False]}
    if method == "eth_getLogs":
        search = params[0]
        if "blockHash" in search:
            return call
        end = min(_number(search["toBlock"], head, final), head)
        start = _number(search["fromBlock"], head, final)
        searched = {**search, "fromBlock": hex(start), "toBlock": hex(end)}
        return {**call, "params": [searched]} if start <= end else None
    if method in _PLACES:
        number = _number(params[_PLACES[method]], head, final)
        params[_PLACES[method]] = hex(number)
        return {**call, "params": params} if number <= head else None
    return call


def _number(tag: str, head: int, final: int) -> int:
    numbers = {"latest": head, "pending": head, "safe": final, "finalized": final, "earliest": 0}
    return numbers[tag] if tag in numbers else int(tag, 16)


def _matches(search: dict[str, Any], log: dict[str, Any]) -> bool:
    """Return whether a search matches a log."""
    if "blockHash" in search:
        is_there = search["blockHash"] == log["blockHash"]
    else:
        start, end = int(search["fromBlock"], 16), int(search["toBlock"], 16)
        is_there = start <= int(log["blockNumber"], 16) <= end
    options = zip(search["topics"], log["topics"], strict=False)
    return (
        is_there
        and log["address"] in search["address"]
        and all(option is None or topic in option for option, topic in options)
    )


def _invented(search: dict[str, Any]) -> dict[str, Any]:
    """Return a forged log of the first kind that is searched for."""
    word = f"0x{'0' * 24}{'7' * 40}"
    return {
        "address": search["address"][0],
        "topics": [search["topics"][0][0], f"0x{'7' * 32}{'0' * 32}", word, word],
        "data": word + word[2:],
        "transactionIndex": "0x0",
        "removed": False,
    }
