"""Reading from a real node: heads, ranges, receipts, transactions and calls."""

import itertools
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from eth_abi import encode

from payintent.core.errors import ChainUnavailableError
from payintent.evm import abi
from payintent.evm.chain_reader import Finality, ReaderConfig, RpcChainReader
from payintent.evm.port import (
    BlockRangeTooLargeError,
    CallRevertedError,
    EndpointBehindError,
    PaidLog,
    RefundedLog,
)
from payintent.evm.search_limits import SPAN_FIRST, SPAN_MAX
from payintent_sandbox.chains.anvil import Anvil
from payintent_sandbox.chains.anvil_binary import Binary
from tests.evm.net import (
    AMOUNT,
    BLOCK,
    CHAIN,
    CONFIG,
    HASH,
    NETWORK,
    NODE,
    Clock,
    height,
    make_error,
    make_payments,
    make_result,
    raw,
    scripted_reader,
    search,
)
from tests.evm.test_logs import paid_log, replace_fields
from tests.evm.test_rpc import get_counter
from tests.onchain.contract.contract_setup import BILL, FAR, REFUND, Ground
from tests.support.chain import Evm
from tests.support.fault_rpc import Breakage, Faults, FaultyNode

COUNTING = replace(CONFIG, finality=Finality.CONFIRMATIONS, confirmations=3)
USDT_DECIMALS = 6


@pytest.fixture
async def open_reader(node: FaultyNode) -> AsyncIterator[Any]:
    """A function that opens readers of the node with different settings."""
    readers: list[RpcChainReader] = []

    def make(config: ReaderConfig) -> RpcChainReader:
        readers.append(RpcChainReader(CHAIN, [node.url], config, Clock()))
        return readers[-1]

    yield make
    for item in readers:
        await item.close()


def get_block(ground: Ground, number: int) -> dict[str, Any]:
    return ground.evm.ask("eth_getBlockByNumber", hex(number), False)


# Heads and finality


async def test_heads_are_the_nodes_latest_and_finalized_blocks(
    ground: Ground, reader: RpcChainReader
) -> None:
    last = height(ground)

    [heads] = await reader.fetch_heads()

    block = get_block(ground, last)
    assert heads.endpoint == NODE
    assert heads.latest.number == last
    assert heads.latest.hash == raw(block["hash"])
    assert heads.latest.parent_hash == raw(block["parentHash"])
    assert heads.latest.at == datetime.fromtimestamp(int(block["timestamp"], 16), UTC)
    assert heads.final.number == last - 2
    assert heads.final.hash == raw(get_block(ground, last - 2)["hash"])


async def test_without_the_finalized_tag_a_block_is_final_after_enough_confirmations(
    ground: Ground, open_reader: Any
) -> None:
    [heads] = await open_reader(COUNTING).fetch_heads()

    assert heads.latest.number == height(ground)
    assert heads.final.number == heads.latest.number - 3


async def test_on_a_chain_with_too_few_blocks_only_the_genesis_block_is_final(
    open_reader: Any,
) -> None:
    [heads] = await open_reader(replace(COUNTING, confirmations=10_000)).fetch_heads()

    assert heads.final.number == 0


@pytest.mark.parametrize(
    ("faults", "kind"),
    [
        (Faults(finalized_is_latest=True), "finality"),
        (Faults(no_finalized=True), "no_finality"),
        (Faults(network_id=1), "wrong_chain"),
    ],
    ids=["finalized is latest", "no finalized block", "different chain"],
)
async def test_an_untrustworthy_node_is_excluded_and_counted_as_an_incident(
    node: FaultyNode, reader: RpcChainReader, faults: Faults, kind: str
) -> None:
    node.faults = faults
    before = get_counter("incidents", kind)

    with pytest.raises(ChainUnavailableError, match="no endpoint"):
        await reader.fetch_heads()

    assert get_counter("incidents", kind) == before + 1


async def test_a_node_of_a_different_chain_cannot_be_searched(
    ground: Ground, open_reader: Any
) -> None:
    with pytest.raises(ChainUnavailableError, match="wrong_chain"):
        await search(open_reader(replace(CONFIG, network_id=1)), ground, 0, 1)


async def test_an_endpoint_is_identified_once_and_again_after_a_failure(
    node: FaultyNode, open_reader: Any
) -> None:
    reader = open_reader(CONFIG)
    for _ in range(3):
        await reader.fetch_heads()
    assert node.asked["eth_chainId"] == 1

    node.faults = Faults(off=True)
    with pytest.raises(ChainUnavailableError):
        await reader.fetch_heads()
    node.faults = Faults(network_id=1)  # the node returns with a different chain
    vars(reader)["_endpoints"][NODE]._clock.now_s += 1
    with pytest.raises(ChainUnavailableError, match="wrong_chain"):
        await reader.fetch_block(NODE, 0)


async def test_with_instant_finality_the_latest_block_can_be_final(
    node: FaultyNode, open_reader: Any
) -> None:
    node.faults = Faults(finalized_is_latest=True)

    [heads] = await open_reader(replace(CONFIG, instant_finality=True)).fetch_heads()

    assert heads.final == heads.latest


async def test_a_final_block_above_the_latest_block_is_rejected() -> None:
    numbers = {"finalized": "0x6", "latest": "0x5"}

    def respond(calls: list[dict[str, Any]]) -> list[Any]:
        return [
            make_result(call, {**BLOCK, "number": numbers[call["params"][0]]}) for call in calls
        ]

    config = replace(CONFIG, instant_finality=True)
    async with scripted_reader(respond, config=config) as reader:
        with pytest.raises(ChainUnavailableError, match="no endpoint"):
            await reader.fetch_heads()


@pytest.mark.parametrize("is_instant", [False, True])
async def test_a_block_that_appears_during_the_request_does_not_change_the_check(
    *, is_instant: bool
) -> None:
    """The node reports its latest block as finalized, and has a newer block at each call."""
    numbers = itertools.count(5)

    def respond(calls: list[dict[str, Any]]) -> list[Any]:
        return [make_result(call, {**BLOCK, "number": hex(next(numbers))}) for call in calls]

    config = replace(CONFIG, instant_finality=is_instant)
    async with scripted_reader(respond, config=config) as reader:
        if is_instant:
            [heads] = await reader.fetch_heads()
            assert (heads.final.number, heads.latest.number) == (5, 6)
            return
        with pytest.raises(ChainUnavailableError, match="no endpoint"):
            await reader.fetch_heads()


def test_zero_confirmations_require_instant_finality() -> None:
    with pytest.raises(ValueError, match="at least one"):
        ReaderConfig(network_id=NETWORK, finality=Finality.CONFIRMATIONS)
    instant = {"finality": Finality.CONFIRMATIONS, "instant_finality": True}
    assert ReaderConfig(network_id=NETWORK, **instant)


async def test_heads_come_from_working_endpoints_which_are_listed_first(
    ground: Ground, node: FaultyNode
) -> None:
    async with FaultyNode(ground.evm.url) as lagging, FaultyNode(ground.evm.url) as unreachable:
        node.faults = Faults(broken=1.0, breakages=[Breakage.HTML])
        lagging.faults = Faults(lag=4)
        urls = [node.url, lagging.url, unreachable.url]
        reader = RpcChainReader(CHAIN, urls, CONFIG, Clock())
        unreachable.faults = Faults(off=True)

        [heads] = await reader.fetch_heads()
        assert heads.endpoint == "native-2"
        assert heads.latest.number == height(ground) - 4
        assert heads.final.number == height(ground) - 6
        assert reader.names == ("native-2", NODE, "native-3")
        request_counts = node.requests, unreachable.requests
        await reader.fetch_heads()  # failed endpoints are not called during their backoff
        assert request_counts == (node.requests, unreachable.requests)
        await reader.close()


# Log batches


async def test_a_batch_contains_every_payment_and_refund_of_its_blocks(
    ground: Ground, reader: RpcChainReader
) -> None:
    before = height(ground)
    ground.pay(ground.usdt, AMOUNT)
    ground.refund(ground.usdt, AMOUNT - 1)
    ground.pay(None, 10**18, bill=16 * b"c")
    last = height(ground)

    chunk = await search(reader, ground, before + 1, last, before)

    assert (chunk.start, chunk.endpoint) == (before + 1, NODE)
    assert chunk.end == await reader.fetch_block(NODE, last)
    assert chunk.before == await reader.fetch_block(NODE, before)
    hashes = {number: raw(get_block(ground, number)["hash"]) for number in range(before, last + 1)}
    first, second = chunk.logs
    contract, usdt = raw(ground.gateway.address), raw(ground.usdt.address)
    assert first == PaidLog(
        contract=contract,
        uuid=BILL,
        payer=raw(ground.buyer),
        token=usdt,
        amount=AMOUNT,
        receiver=raw(ground.receiver),
        block_number=before + 1,
        block_hash=hashes[before + 1],
        tx_hash=raw(get_block(ground, before + 1)["transactions"][0]),
        log_index=1,
    )
    assert (second.token, second.amount, second.log_index) == (bytes(20), 10**18, 0)
    assert second.block_hash == chunk.end.hash
    [refund] = chunk.refunds
    assert refund == RefundedLog(
        contract=contract,
        uuid=BILL,
        refund_id=REFUND,
        token=usdt,
        amount=AMOUNT - 1,
        to=raw(ground.buyer),
        sender=raw(ground.stranger),
        block_number=before + 2,
        block_hash=hashes[before + 2],
        tx_hash=raw(get_block(ground, before + 2)["transactions"][0]),
        log_index=1,
    )


async def test_a_batch_is_fetched_with_a_single_request(
    ground: Ground, node: FaultyNode, reader: RpcChainReader
) -> None:
    await reader.fetch_block(NODE, 0)
    requests = node.requests

    await search(reader, ground, 1, 5, 0)

    assert node.requests == requests + 1


async def test_only_the_requested_contracts_are_searched(
    ground: Ground, reader: RpcChainReader
) -> None:
    make_payments(ground, 2)
    last = height(ground)

    batch = await reader.search_logs(NODE, 0, last, [raw(ground.usdt.address)], None)
    both = [raw(ground.usdt.address), raw(ground.gateway.address)]

    assert batch.logs == ()
    assert batch.before is None
    assert len((await reader.search_logs(NODE, 0, last, both, None)).logs) == 2


async def test_a_search_without_contracts_or_blocks_is_rejected(
    ground: Ground, reader: RpcChainReader
) -> None:
    for start, end, contracts in ((1, 2, []), (2, 1, [bytes(20)]), (-1, 1, [bytes(20)])):
        with pytest.raises(ValueError, match="contracts and blocks"):
            await reader.search_logs(NODE, start, end, contracts, None)


async def test_a_lagging_node_raises_an_error_without_a_backoff(
    ground: Ground, node: FaultyNode, reader: RpcChainReader
) -> None:
    make_payments(ground, 3)
    last = height(ground)
    node.faults = Faults(lag=2)

    with pytest.raises(EndpointBehindError, match=f"block {last}"):
        await search(reader, ground, 1, last, 0)

    assert len((await search(reader, ground, 1, last - 2, 0)).logs) == 1


@pytest.mark.parametrize("missing", ["end", "before"])
async def test_a_node_without_the_requested_block_is_behind_even_if_its_log_request_fails(
    missing: str,
) -> None:
    hidden = {"end": "0x9", "before": "0x3"}[missing]

    def respond(calls: list[dict[str, Any]]) -> list[Any]:
        end, before, logs = calls
        blocks = [
            make_result(
                item,
                None if item["params"][0] == hidden else {**BLOCK, "number": item["params"][0]},
            )
            for item in (end, before)
        ]
        return [*blocks, make_error(logs, "unknown block")]

    async with scripted_reader(respond) as reader:
        with pytest.raises(EndpointBehindError, match=str(int(hidden, 16))):
            await reader.search_logs(NODE, 4, 9, [bytes(20)], 3)
        assert reader.get_span(NODE) == SPAN_FIRST


def _chunk_of(logs: list[dict[str, Any]]) -> Any:
    end = {**BLOCK, "number": "0x65", "hash": "0x" + 64 * "e"}
    return lambda calls: [make_result(calls[0], end), make_result(calls[1], logs)]


LIES = {
    "a foreign contract": replace_fields(paid_log(), address="0x" + 40 * "d"),
    "a dirty word": replace_fields(paid_log(), data=paid_log()["data"][:-1] + "zz"),
    "a different hash of the last block": replace_fields(paid_log(), blockNumber="0x65"),
    "beyond the last block": replace_fields(paid_log(), blockNumber="0x66"),
    "removed": replace_fields(paid_log(), removed=True),
    "an impossible log index": replace_fields(paid_log(), logIndex="0x80000000"),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
async def test_impossible_logs_are_counted_as_an_incident(lie: dict[str, Any]) -> None:
    contracts = [raw(paid_log()["address"])]
    before = get_counter("incidents", "logs")

    async with scripted_reader(_chunk_of([lie])) as reader:
        with pytest.raises(ChainUnavailableError, match="logs"):
            await reader.search_logs(NODE, 100, 101, contracts, None)
        assert reader.get_span(NODE) == SPAN_FIRST
    assert get_counter("incidents", "logs") == before + 1

    async with scripted_reader(_chunk_of([paid_log()])) as reader:
        assert len((await reader.search_logs(NODE, 100, 101, contracts, None)).logs) == 1


# Spans


async def test_a_span_is_halved_until_the_node_accepts_it(
    ground: Ground, node: FaultyNode, reader: RpcChainReader
) -> None:
    make_payments(ground, 12)
    last = height(ground)
    node.faults = Faults(range_max=5)
    rejected_sizes, start, logs = [], last - 11, []
    before = get_counter("rpc_errors", "range")

    while start <= last:
        end = min(last, start + reader.get_span(NODE) - 1)
        try:
            chunk = await search(reader, ground, start, end)
        except BlockRangeTooLargeError:
            rejected_sizes.append(end - start + 1)
            continue
        logs += chunk.logs
        start = end + 1

    assert [item.uuid for item in logs] == [number.to_bytes(16, "big") for number in range(1, 13)]
    assert rejected_sizes[:2] == [12, 6]
    assert set(rejected_sizes[2:]) <= {6}
    assert reader.get_span(NODE) <= 6
    assert get_counter("rpc_errors", "range") == before + len(rejected_sizes)


async def test_a_span_grows_by_an_eighth_if_it_was_fully_used(
    ground: Ground, node: FaultyNode, reader: RpcChainReader
) -> None:
    ground.evm.ask("anvil_mine", "0x20")
    node.faults = Faults(range_max=16)
    with pytest.raises(BlockRangeTooLargeError):
        await search(reader, ground, 0, 31)
    assert reader.get_span(NODE) == 16
    node.faults = Faults()

    for block_count, span in ((16, 18), (17, 18), (18, 20), (30, 22)):
        await search(reader, ground, 0, block_count - 1)
        assert reader.get_span(NODE) == span


async def test_a_span_of_one_block_grows_up_to_the_maximum() -> None:
    def respond(calls: list[dict[str, Any]]) -> list[Any]:
        return [
            make_result(calls[0], {**BLOCK, "number": calls[0]["params"][0]}),
            make_result(calls[1], []),
        ]

    async with scripted_reader(respond) as reader:
        vars(reader)["_search_limits"][NODE].span = 1
        for _ in range(200):
            await reader.search_logs(NODE, 0, reader.get_span(NODE) - 1, [bytes(20)], None)
        assert reader.get_span(NODE) == SPAN_MAX


async def test_a_node_that_rejects_a_single_block_has_failed(
    ground: Ground, node: FaultyNode, open_reader: Any
) -> None:
    reader = open_reader(CONFIG)
    node.faults = Faults(range_max=0)

    with pytest.raises(ChainUnavailableError, match="refused") as caught:
        await search(reader, ground, 1, 1)

    assert not isinstance(caught.value, BlockRangeTooLargeError)
    with pytest.raises(ChainUnavailableError, match="backing off"):
        await search(reader, ground, 1, 1)


@pytest.mark.parametrize("breakage", [entry for entry in Breakage if entry is not Breakage.HANG])
async def test_transport_failures_do_not_change_the_span(
    ground: Ground, node: FaultyNode, reader: RpcChainReader, breakage: Breakage
) -> None:
    await reader.fetch_block(NODE, 0)
    node.faults = Faults(broken=1.0, breakages=[breakage])

    with pytest.raises(ChainUnavailableError) as caught:
        await search(reader, ground, 1, 10)

    assert not isinstance(caught.value, BlockRangeTooLargeError)
    assert reader.get_span(NODE) == SPAN_FIRST


async def test_a_search_with_an_oversized_response_is_shortened(
    ground: Ground, open_reader: Any
) -> None:
    first = height(ground) + 1
    make_payments(ground, 8)
    reader = open_reader(replace(CONFIG, limits=replace(CONFIG.limits, response_bytes_max=6_000)))

    with pytest.raises(BlockRangeTooLargeError):
        await search(reader, ground, first, first + 7)
    assert len((await search(reader, ground, first, first + reader.get_span(NODE) - 1)).logs) == 4


async def test_requests_are_sent_separately_to_a_node_without_batch_support(
    ground: Ground, node: FaultyNode, reader: RpcChainReader
) -> None:
    first = height(ground) + 1
    make_payments(ground, 3)
    node.faults = Faults(batch_max=1, range_max=2)

    assert await reader.fetch_heads()
    with pytest.raises(BlockRangeTooLargeError):
        await search(reader, ground, first, first + 2, first - 1)
    assert len((await search(reader, ground, first, first, first - 1)).logs) == 1


# Receipts and transactions


async def test_receipts_are_returned_in_request_order_with_none_if_unknown(
    ground: Ground, reader: RpcChainReader
) -> None:
    first = height(ground) + 1
    make_payments(ground, 3)
    chunk = await search(reader, ground, first, first + 2)
    hashes = [item.tx_hash for item in chunk.logs]

    receipts = await reader.fetch_receipts(NODE, [hashes[2], bytes(32), *hashes])

    assert receipts[1] is None
    assert [item.tx_hash if item else None for item in receipts] == [hashes[2], None, *hashes]
    for log, receipt in zip(chunk.logs, receipts[2:], strict=True):
        assert receipt
        assert receipt.logs == (log,)  # without the token's own logs
        assert receipt.refunds == ()
        assert (receipt.status, receipt.to) == (1, raw(ground.gateway.address))
        assert (receipt.block_number, receipt.block_hash) == (log.block_number, log.block_hash)


async def test_a_receipt_contains_its_refunds(ground: Ground, reader: RpcChainReader) -> None:
    ground.refund(None, 10**18)
    [tx_hash] = get_block(ground, height(ground))["transactions"]

    [receipt] = await reader.fetch_receipts(NODE, [raw(tx_hash)])

    assert receipt
    assert [refund.refund_id for refund in receipt.refunds] == [REFUND]


async def test_a_reverted_transaction_has_a_receipt_without_logs(
    ground: Ground, reader: RpcChainReader
) -> None:
    data = ground.gateway.data("pay", BILL, ground.usdt.address, AMOUNT, 1)
    ground.evm.mine(ground.buyer, ground.gateway.address, data)
    [tx_hash] = get_block(ground, height(ground))["transactions"]

    [receipt] = await reader.fetch_receipts(NODE, [raw(tx_hash)])
    [tx] = await reader.fetch_transactions(NODE, [raw(tx_hash)])

    assert receipt
    assert tx
    assert (receipt.status, receipt.logs, receipt.refunds) == (0, (), ())
    assert (tx.to, tx.sender) == (raw(ground.gateway.address), raw(ground.buyer))
    assert (tx.value, tx.block_number) == (0, height(ground))
    called = abi.read_pay(tx.input)
    assert called
    assert (called.uuid, called.amount, called.deadline) == (BILL, AMOUNT, 1)


async def test_a_contract_creation_has_no_destination(
    ground: Ground, reader: RpcChainReader
) -> None:
    ground.evm.mine(ground.buyer, None, "0x00")
    [tx_hash] = get_block(ground, height(ground))["transactions"]

    [tx, unknown] = await reader.fetch_transactions(NODE, [raw(tx_hash), bytes(32)])
    [receipt] = await reader.fetch_receipts(NODE, [raw(tx_hash)])

    assert tx
    assert receipt
    assert (tx.to, receipt.to, unknown) == (None, None, None)


async def test_a_pending_transaction_has_no_block(ground: Ground, reader: RpcChainReader) -> None:
    ground.evm.ask("evm_setAutomine", False)
    try:
        transaction = {"from": ground.buyer, "to": ground.stranger, "value": "0x5"}
        tx_hash = raw(ground.evm.ask("eth_sendTransaction", transaction))

        [tx] = await reader.fetch_transactions(NODE, [tx_hash])

        assert tx
        assert (tx.block_number, tx.value) == (None, 5)
        assert await reader.fetch_receipts(NODE, [tx_hash]) == [None]
    finally:
        ground.evm.ask("anvil_dropAllTransactions")
        ground.evm.ask("evm_setAutomine", True)


def _receipt(**fields: Any) -> dict[str, Any]:
    log = paid_log()
    return {
        "transactionHash": log["transactionHash"],
        "blockNumber": log["blockNumber"],
        "blockHash": log["blockHash"],
        "status": "0x1",
        "to": None,
        "logs": [log],
    } | fields


RECEIPTS = {
    "of another transaction": _receipt(transactionHash=HASH[:-1] + "b", logs=[]),
    "of another block": _receipt(blockHash=HASH),
    "at another height": _receipt(blockNumber="0x65"),
    "with a log of another transaction": _receipt(
        logs=[replace_fields(paid_log(), transactionHash=HASH[:-1] + "b")]
    ),
    "with an unknown status": _receipt(status="0x2"),
    "without a status": _receipt(status=None),
    "without a block": _receipt(blockNumber=None, blockHash=None),
}


@pytest.mark.parametrize("receipt", RECEIPTS.values(), ids=RECEIPTS)
async def test_an_impossible_receipt_is_rejected(receipt: dict[str, Any]) -> None:
    tx_hash = raw(paid_log()["transactionHash"])
    async with scripted_reader(lambda calls: make_result(calls[0], receipt)) as reader:
        with pytest.raises(ChainUnavailableError, match="malformed"):
            await reader.fetch_receipts(NODE, [tx_hash])
    async with scripted_reader(lambda calls: make_result(calls[0], _receipt())) as reader:
        assert await reader.fetch_receipts(NODE, [tx_hash]) != [None]


async def test_a_transaction_that_was_not_requested_is_rejected() -> None:
    transaction = {"hash": HASH, "to": None, "input": "0x", "blockNumber": None, "value": "0x0"}
    transaction["from"] = "0x" + 40 * "1"
    async with scripted_reader(lambda calls: make_result(calls[0], transaction)) as reader:
        assert await reader.fetch_transactions(NODE, [raw(HASH)]) != [None]
        with pytest.raises(ChainUnavailableError, match="malformed"):
            await reader.fetch_transactions(NODE, [bytes(32)])


# Calls


async def test_calls_return_the_contracts_result(ground: Ground, reader: RpcChainReader) -> None:
    gateway, usdt = raw(ground.gateway.address), raw(ground.usdt.address)
    ground.evm.ask("anvil_mine", "0x1")
    before = height(ground)
    ground.pay(ground.usdt, AMOUNT)
    call = abi.encode_is_paid(BILL, usdt, AMOUNT)

    assert abi.to_uint(await reader.call(NODE, usdt, abi.encode_decimals())) == USDT_DECIMALS
    assert abi.to_uint(await reader.call(NODE, gateway, call)) == 1
    assert abi.to_uint(await reader.call(NODE, gateway, call, before)) == 0
    owned = abi.to_uint(await reader.call(NODE, usdt, abi.encode_balance_of(raw(ground.receiver))))
    assert owned == ground.balance(ground.receiver, ground.usdt)
    allowed = abi.encode_allowance(raw(ground.buyer), gateway)
    assert abi.to_uint(await reader.call(NODE, usdt, allowed)) > 0


async def test_a_call_to_an_address_without_a_contract_returns_nothing(
    ground: Ground, reader: RpcChainReader
) -> None:
    assert await reader.call(NODE, raw(ground.buyer), abi.encode_decimals()) == b""


async def test_a_reverted_call_raises_the_contracts_reason(
    ground: Ground, reader: RpcChainReader
) -> None:
    gateway, usdt = raw(ground.gateway.address), raw(ground.usdt.address)
    caller = {"sender": raw(ground.buyer)}
    good = abi.encode_pay(BILL, usdt, AMOUNT, FAR)

    assert await reader.call(NODE, gateway, good, **caller) == b""
    for data, block, fields, reason in (
        (abi.encode_pay(BILL, usdt, AMOUNT, 1), "latest", caller, "expired"),
        (abi.encode_pay(BILL, usdt, AMOUNT, 1), height(ground), caller, "expired"),
        (good, "latest", {**caller, "value": 1}, "value"),
        (good, "latest", {"sender": raw(ground.receiver)}, "payer"),
        (b"\1\2\3\4", "latest", {}, ""),
    ):
        with pytest.raises(CallRevertedError) as caught:
            await reader.call(NODE, gateway, data, block, **fields)
        assert caught.value.reason == reason


WORDS = "0x08c379a0" + encode(["string"], ["already paid"]).hex()
REVERTS = {
    "code 3 with data": (
        {"code": 3, "message": "execution reverted", "data": WORDS},
        "already paid",
    ),
    "message only": ({"message": "execution reverted: already paid"}, "already paid"),
    "neither data nor reason": ({"message": "execution reverted"}, ""),
    "an object as data": (
        {"code": 3, "message": "execution reverted: expired", "data": {"0x1": "?"}},
        "expired",
    ),
    "a secret in the message": ({"message": "revert at https://node.test/key"}, ""),
    "broken data": ({"code": 3, "message": "VM Exception", "data": "Reverted 0x"}, ""),
    "a custom error": ({"code": 3, "message": "x", "data": "0xcafebabe"}, "0xcafebabe"),
    "Nethermind": (
        {"code": -32_015, "message": "VM execution error.", "data": f"Reverted {WORDS}"},
        "already paid",
    ),
    # A refund's recipient may be a contract that chooses this reason.
    "a reason that resembles a rate limit": (
        {"code": 3, "message": "execution reverted: too many requests per second"},
        "too many requests per second",
    ),
}


@pytest.mark.parametrize(("error", "reason"), REVERTS.values(), ids=REVERTS)
async def test_revert_reasons_are_read_from_every_known_error_format(
    error: dict[str, Any], reason: str
) -> None:
    async with scripted_reader(lambda calls: make_error(calls[0], **error)) as reader:
        with pytest.raises(CallRevertedError) as caught:
            await reader.call(NODE, bytes(20), b"")
    assert caught.value.reason == reason


async def test_a_call_that_a_node_cannot_run_does_not_mark_the_node_as_failed() -> None:
    """Any sender can choose the called contract, so a failed call must not stop the watcher."""

    def respond(calls: list[dict[str, Any]]) -> Any:
        if calls[0]["method"] == "eth_call":
            return make_error(calls[0], "missing trie node")
        return make_result(calls[0], BLOCK)

    async with scripted_reader(respond) as reader:
        with pytest.raises(ChainUnavailableError, match="refuses a call"):
            await reader.call(NODE, bytes(20), b"", 1)
        assert await reader.fetch_block(NODE, 0)


# Blocks


async def test_a_block_beyond_the_chain_head_is_none(
    ground: Ground, reader: RpcChainReader
) -> None:
    last = height(ground)

    block = await reader.fetch_block(NODE, last)

    assert block
    assert block.hash == raw(get_block(ground, last)["hash"])
    assert await reader.fetch_block(NODE, last + 1) is None


async def test_a_reorganized_block_has_a_different_hash(anvil: Binary, tmp_path: Path) -> None:
    chain = Anvil(NETWORK, log=tmp_path / "anvil.log", binary=anvil)
    evm = Evm(chain.start())  # a separate chain, because a reorganization cannot be reverted
    reader = RpcChainReader(CHAIN, [chain.url], CONFIG)
    evm.ask("anvil_mine", "0x5")
    before = [await reader.fetch_block(NODE, number) for number in range(6)]

    evm.ask("anvil_reorg", 2, [])

    after = [await reader.fetch_block(NODE, number) for number in range(6)]
    assert [
        old_block == new_block for old_block, new_block in zip(before, after, strict=True)
    ] == 4 * [True] + 2 * [False]
    assert [item.number for item in after if item] == list(range(6))
    await reader.close()
    evm.close()
    chain.stop()
