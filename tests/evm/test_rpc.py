"""Every failure of an endpoint raises ChainUnavailableError and does not disclose its URL."""

import json
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web
from prometheus_client import REGISTRY, generate_latest
from structlog.testing import capture_logs

from payintent.core.errors import ChainUnavailableError
from payintent.evm.chain_reader import RpcChainReader
from payintent.evm.rpc import RpcLimits
from tests.evm.net import (
    BLOCK,
    CHAIN,
    CONFIG,
    HASH,
    NODE,
    Clock,
    make_error,
    make_result,
    scripted_reader,
)
from tests.onchain.contract.contract_setup import Ground
from tests.support.fault_rpc import Breakage, Faults, FaultyNode

BRIEF = replace(CONFIG, limits=RpcLimits(timeout_s=0.2))
SMALL = replace(CONFIG, limits=RpcLimits(response_bytes_max=2_000))
HASHES = [bytes([number]) * 32 for number in range(1, 11)]


@contextmanager
def raises_unavailable(words: str) -> Iterator[None]:
    with pytest.raises(ChainUnavailableError, match=words):
        yield


def get_counter(name: str, kind: str) -> float:
    labels = {"chain": CHAIN, "endpoint": NODE, "kind": kind}
    return REGISTRY.get_sample_value(f"payintent_chain_{name}_total", labels) or 0.0


KINDS = {
    Breakage.THROTTLED: "throttled",
    Breakage.BAD_GATEWAY: "status",
    Breakage.HTML: "malformed",
    Breakage.GARBAGE: "malformed",
    Breakage.WRONG_IDS: "malformed",
    Breakage.EMPTY: "malformed",
    Breakage.WRONG_TYPES: "malformed",
    Breakage.CUT: "connection",
}


@pytest.mark.parametrize(("breakage", "kind"), KINDS.items(), ids=KINDS)
async def test_unusable_responses_raise_an_error_and_are_counted_by_kind(
    node: FaultyNode, reader: RpcChainReader, breakage: Breakage, kind: str
) -> None:
    await reader.fetch_block(NODE, 1)
    before = get_counter("rpc_errors", kind)
    node.faults = Faults(broken=1.0, breakages=[breakage])

    with raises_unavailable(f"{NODE} returned no usable response: {kind}"):
        await reader.fetch_receipts(NODE, HASHES[:2])

    assert get_counter("rpc_errors", kind) == before + 1


async def test_a_hanging_endpoint_times_out(node: FaultyNode) -> None:
    reader = RpcChainReader(CHAIN, [node.url], BRIEF)
    node.faults = Faults(broken=1.0, breakages=[Breakage.HANG])

    with raises_unavailable("timeout"):
        await reader.fetch_block(NODE, 1)

    await reader.close()


async def test_an_unreachable_endpoint_is_retried_after_its_back_off(node: FaultyNode) -> None:
    clock = Clock()
    reader = RpcChainReader(CHAIN, [node.url], CONFIG, clock)
    node.faults = Faults(off=True)
    with raises_unavailable("connection"):
        await reader.fetch_block(NODE, 1)
    node.faults = Faults()

    clock.now_s += 0.05
    assert await reader.fetch_block(NODE, 1)

    await reader.close()


async def test_the_back_off_of_a_failing_endpoint_doubles_up_to_30_seconds(
    node: FaultyNode,
) -> None:
    clock = Clock()
    reader = RpcChainReader(CHAIN, [node.url], CONFIG, clock)
    node.faults = Faults(off=True)

    for back_off_s in (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0):
        requests = node.requests
        with raises_unavailable("no usable response"):
            await reader.fetch_block(NODE, 1)
        assert node.requests > requests
        requests = node.requests
        clock.now_s += back_off_s * 0.999
        with raises_unavailable("backing off"):
            await reader.fetch_block(NODE, 1)
        assert node.requests == requests
        clock.now_s += back_off_s * 0.002

    node.faults = Faults()
    assert await reader.fetch_block(NODE, 1)
    node.faults = Faults(off=True)
    with raises_unavailable("no usable response"):
        await reader.fetch_block(NODE, 1)
    clock.now_s += 0.0501
    with raises_unavailable("no usable response"):  # the first back-off delay again
        await reader.fetch_block(NODE, 1)

    await reader.close()


async def test_an_endpoint_failure_and_its_recovery_are_logged_once(
    node: FaultyNode,
) -> None:
    clock = Clock()
    reader = RpcChainReader(CHAIN, [node.url], CONFIG, clock)
    node.faults = Faults(off=True)
    with capture_logs() as lines:
        for _ in range(3):
            clock.now_s += 60
            with raises_unavailable("connection"):
                await reader.fetch_block(NODE, 1)
        node.faults = Faults()
        clock.now_s += 60
        await reader.fetch_block(NODE, 1)

    events = [(line["event"], line.get("kind"), line["endpoint"]) for line in lines]
    assert events == [
        ("chain_endpoint_failed", "connection", NODE),
        ("chain_endpoint_recovered", None, NODE),
    ]
    await reader.close()


FAULTS = [
    *(Faults(broken=1.0, breakages=[item]) for item in Breakage),
    Faults(off=True),
    Faults(network_id=5),
    Faults(no_finalized=True),
    Faults(range_max=0),
]


@pytest.mark.parametrize("faults", FAULTS, ids=str)
async def test_the_endpoint_url_is_never_disclosed(node: FaultyNode, faults: Faults) -> None:
    node.faults = faults
    reader = RpcChainReader(CHAIN, [node.url, "http://user:key-too@127.0.0.1:1/key-too"], BRIEF)
    caught: list[BaseException] = []
    with capture_logs() as lines:
        for request in (
            reader.fetch_heads(),
            reader.fetch_block("native-2", 1),
            reader.fetch_receipts(NODE, HASHES[:2]),
            reader.search_logs(NODE, 1, 5, [bytes(20)], None),
        ):
            try:
                await request
            except ChainUnavailableError as error:
                caught.append(error)

    assert caught
    texts = [
        repr(lines),
        repr(reader),
        repr(vars(reader)["_endpoints"]),
        generate_latest().decode(),
    ]
    for error in caught:
        texts += ["".join(traceback.format_exception(error)), repr(error)]
        assert error.__context__ is None  # an aiohttp error would contain the URL
        assert error.__cause__ is None
    port = node.url.split(":")[2].split("/")[0]
    for secret in ("a-key-that-is-secret", "key-too", "http://", f":{port}"):
        assert [item for item in texts if secret in item.replace(__file__, "")] == []
    await reader.close()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://node.test/key",
        "http:///key",
        "node.test/key",
        "http://[1/key",
        "http://a:99999/key",
    ],
)
def test_an_invalid_url_is_rejected_without_being_disclosed(url: str) -> None:
    with pytest.raises(ValueError, match=r"the URL of native-2 must start with http") as caught:
        RpcChainReader(CHAIN, ["http://127.0.0.1:1/", url], CONFIG)
    assert "key" not in "".join(traceback.format_exception(caught.value, limit=0))


def test_a_chain_without_endpoints_is_rejected() -> None:
    with pytest.raises(ValueError, match="no endpoint"):
        RpcChainReader(CHAIN, [], CONFIG)


async def test_redirects_are_not_followed() -> None:
    elsewhere = {"Location": "http://127.0.0.1:1/"}
    async with scripted_reader(lambda _: web.Response(status=307, headers=elsewhere)) as reader:
        with raises_unavailable("status"):
            await reader.fetch_block(NODE, 1)


async def test_compressed_responses_are_not_decompressed() -> None:
    def respond_compressed(calls: list[dict[str, Any]]) -> web.Response:
        response = web.json_response(make_result(calls[0], BLOCK))
        response.enable_compression(web.ContentCoding.gzip, strategy=0)
        return response

    async with scripted_reader(respond_compressed) as reader:
        with raises_unavailable("malformed"):
            await reader.fetch_block(NODE, 0)


SINGLE = {
    "a different id": lambda call: make_result({"id": call["id"] + 1}, None),
    "no id": lambda _: make_result({"id": None}, None),
    "text as the id": lambda call: make_result({"id": str(call["id"])}, None),
    "neither result nor error": lambda call: {"jsonrpc": "2.0", "id": call["id"]},
    "a list": lambda call: [make_result(call, None)],
    "an empty body": lambda _: web.Response(text=""),
    "a string": lambda _: web.Response(text='"hello"'),
    "deeply nested brackets": lambda _: web.Response(text='{"result":' + 100_000 * "["),
    "invalid utf-8": lambda _: web.Response(body=b'{"id":1,"result":"\xff"}'),
    "a block without a hash": lambda call: make_result(call, {**BLOCK, "hash": None}),
    "a block with a different number": lambda call: make_result(call, {**BLOCK, "number": "0x1"}),
    "a block with an invalid time": lambda call: make_result(
        call, {**BLOCK, "timestamp": "0xffffffffffffff"}
    ),
    "a block with a time in the far future": lambda call: make_result(
        call, {**BLOCK, "timestamp": "0x7fffffffffffffff"}
    ),
    "a block with a short hash": lambda call: make_result(call, {**BLOCK, "hash": HASH[:-2]}),
}


@pytest.mark.parametrize("respond", SINGLE.values(), ids=SINGLE)
async def test_a_malformed_response_is_rejected(respond: Any) -> None:
    async with scripted_reader(lambda calls: respond(calls[0])) as reader:
        with raises_unavailable("malformed"):
            await reader.fetch_block(NODE, 0)


BATCHES = {
    "a missing response": lambda calls: [make_result(call, None) for call in calls[1:]],
    "an extra response": lambda calls: [
        make_result(item, None) for item in [*calls, {"id": 10_000}]
    ],
    "a duplicate response": lambda calls: [
        make_result(item, None) for item in [calls[0], *calls[:-1]]
    ],
    "a duplicate in addition to all responses": lambda calls: [
        make_result(item, None) for item in [calls[0], *calls]
    ],
    "a response with an unknown id": lambda calls: [
        make_result(item, None) for item in [*calls[:-1], {"id": 10_000}]
    ],
    "an object instead of a list": lambda calls: make_result(calls[0], None),
}


@pytest.mark.parametrize("respond", BATCHES.values(), ids=BATCHES)
async def test_a_batch_response_that_does_not_match_its_calls_is_rejected(respond: Any) -> None:
    async with scripted_reader(respond) as reader:
        with raises_unavailable("malformed"):
            await reader.fetch_receipts(NODE, HASHES)


async def test_batch_responses_can_arrive_in_any_order() -> None:
    def respond_backwards(calls: list[dict[str, Any]]) -> list[Any]:
        return [make_result(call, _receipt(call["params"][0])) for call in reversed(calls)]

    async with scripted_reader(respond_backwards) as reader:
        receipts = await reader.fetch_receipts(NODE, HASHES)

    assert [item.tx_hash for item in receipts if item] == HASHES


async def test_a_batch_has_at_most_100_calls() -> None:
    sizes: list[int] = []

    def respond_with_nothing(calls: list[dict[str, Any]]) -> list[Any]:
        sizes.append(len(calls))
        return [make_result(call, None) for call in calls]

    async with scripted_reader(respond_with_nothing) as reader:
        assert await reader.fetch_transactions(NODE, 25 * HASHES) == 250 * [None]

    assert sizes == [100, 100, 50]


async def test_empty_requests_are_not_sent(node: FaultyNode, reader: RpcChainReader) -> None:
    assert await reader.fetch_receipts(NODE, []) == []
    assert await reader.fetch_transactions(NODE, []) == []
    assert node.asked["eth_getTransactionReceipt"] == 0


@pytest.mark.parametrize("most", [1, 4])
async def test_the_batch_size_stays_small_once_a_node_has_rejected_larger_batches(
    node: FaultyNode, reader: RpcChainReader, most: int
) -> None:
    await reader.fetch_block(NODE, 1)
    node.faults = Faults(batch_max=most)

    assert await reader.fetch_receipts(NODE, HASHES) == 10 * [None]
    refused = node.done["refused_batch"]
    assert await reader.fetch_receipts(NODE, HASHES) == 10 * [None]

    assert refused > 0
    assert node.done["refused_batch"] == refused


@pytest.mark.parametrize("has_id", [True, False], ids=["geth", "erigon"])
async def test_a_rejected_batch_may_be_reported_as_a_list_with_one_error(has_id: bool) -> None:
    sizes: list[int] = []

    def respond(calls: list[dict[str, Any]]) -> Any:
        sizes.append(len(calls))
        if len(calls) > 5:
            return [make_error(calls[0] if has_id else None, "batch too large")]
        return [make_result(call, _receipt(call["params"][0])) for call in calls]

    async with scripted_reader(respond) as reader:
        receipts = await reader.fetch_receipts(NODE, HASHES)

    assert [item.tx_hash for item in receipts if item] == HASHES
    assert sizes == [10, 5, 5]


async def test_larger_batches_are_tried_again_after_some_requests(
    node: FaultyNode, reader: RpcChainReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("payintent.evm.rpc.ROUNDS_UNTIL_LARGER_BATCH", 4)
    await reader.fetch_block(NODE, 1)
    node.faults = Faults(batch_max=2)
    await reader.fetch_receipts(NODE, HASHES)
    node.faults = Faults()

    for _ in range(12):
        await reader.fetch_block(NODE, 1)

    before = node.requests
    await reader.fetch_receipts(NODE, HASHES)
    assert node.requests == before + 1


async def test_an_oversized_batch_response_is_requested_in_parts(ground: Ground) -> None:
    sizes: list[int] = []

    def respond_oversized(calls: list[dict[str, Any]]) -> Any:
        sizes.append(len(calls))
        receipts = [
            make_result(call, {**_receipt(call["params"][0]), "bloom": 600 * "0"}) for call in calls
        ]
        return receipts if len(calls) > 1 else receipts[0]

    async with scripted_reader(respond_oversized, config=SMALL) as reader:
        receipts = await reader.fetch_receipts(NODE, HASHES)

    assert [item.tx_hash for item in receipts if item] == HASHES
    assert max(sizes[2:]) <= 3


async def test_an_oversized_response_to_a_single_call_is_rejected() -> None:
    async with scripted_reader(
        lambda calls: make_result(calls[0], {**BLOCK, "extraData": 4_000 * "0"}), config=SMALL
    ) as reader:
        with raises_unavailable("too_large"):
            await reader.fetch_block(NODE, 0)


THROTTLED = [
    lambda calls: make_error(calls[0], "slow down", code=429),
    lambda _: make_error(None, "Too Many Requests"),
    lambda calls: [make_error(call, "exceeded its compute units per second") for call in calls],
]


@pytest.mark.parametrize("respond", THROTTLED)
async def test_a_rate_limit_does_not_reduce_the_batch_size(respond: Any) -> None:
    sizes: list[int] = []

    def respond_and_count(calls: list[dict[str, Any]]) -> Any:
        sizes.append(len(calls))
        return respond(calls)

    async with scripted_reader(respond_and_count) as reader:
        with raises_unavailable("throttled"):
            await reader.fetch_receipts(NODE, HASHES)

    assert sizes == [10]


@pytest.mark.parametrize("status", [400, 413])
async def test_the_rpc_error_in_an_http_error_response_is_read(status: int) -> None:
    def respond_with_error(calls: list[dict[str, Any]]) -> web.Response:
        text = json.dumps(make_error(calls[0], "a lot of words"))
        return web.Response(status=status, text=text)

    async with scripted_reader(respond_with_error) as reader:
        with raises_unavailable("refused"):
            await reader.fetch_block(NODE, 0)


async def test_a_closed_reader_reconnects_on_the_next_request(reader: RpcChainReader) -> None:
    await reader.fetch_block(NODE, 0)
    await reader.close()
    await reader.close()

    assert await reader.fetch_block(NODE, 0)


def _receipt(tx_hash: str) -> dict[str, Any]:
    return {
        "transactionHash": tx_hash,
        "blockNumber": "0x1",
        "blockHash": HASH,
        "status": "0x1",
        "to": "0x" + 40 * "1",
        "logs": [],
    }
