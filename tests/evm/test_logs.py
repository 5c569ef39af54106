"""Logs that eth-abi encodes are decoded, and malformed logs are rejected."""

import json
from typing import Any

import msgspec
import pytest
from eth_abi import encode
from hypothesis import given
from hypothesis import strategies as some

from payintent.evm.event_logs import PAID, REFUNDED, RpcLog, read_logs, read_matching_logs
from payintent.evm.port import PaidLog, RefundedLog

CONTRACT = 20 * b"\xcc"
BLOCK_HASH, TX_HASH = 32 * b"\xbb", 32 * b"\xaa"
UINTS = some.integers(0, 2**256 - 1)
ADDRESSES = some.binary(min_size=20, max_size=20)
UUIDS = some.binary(min_size=16, max_size=16)


def log(
    topic: bytes, indexed: list[tuple[str, Any]], data: list[tuple[str, Any]]
) -> dict[str, Any]:
    """Return a log as a node formats it, built with eth-abi."""
    types, values = [kind for kind, _ in data], [value for _, value in data]
    return {
        "address": f"0x{CONTRACT.hex()}",
        "topics": [
            f"0x{topic.hex()}",
            *(f"0x{encode([kind], [value]).hex()}" for kind, value in indexed),
        ],
        "data": f"0x{encode(types, values).hex()}",
        "blockNumber": "0x64",
        "blockHash": f"0x{BLOCK_HASH.hex()}",
        "transactionHash": f"0x{TX_HASH.hex()}",
        "transactionIndex": "0x0",
        "logIndex": "0x7",
        "removed": False,
    }


def paid_log(
    uuid: bytes = 16 * b"u",
    payer: bytes = 20 * b"p",
    token: bytes = 20 * b"t",
    amount: int = 5,
    receiver: bytes = 20 * b"r",
) -> dict[str, Any]:
    indexed = [("bytes16", uuid), ("address", payer), ("address", token)]
    return log(PAID, indexed, [("uint256", amount), ("address", receiver)])


def refunded_log(
    uuid: bytes = 16 * b"u",
    refund_id: bytes = 16 * b"i",
    token: bytes = 20 * b"t",
    amount: int = 5,
    to: bytes = 20 * b"o",
    sender: bytes = 20 * b"s",
) -> dict[str, Any]:
    indexed = [("bytes16", uuid), ("bytes16", refund_id), ("address", token)]
    return log(REFUNDED, indexed, [("uint256", amount), ("address", to), ("address", sender)])


def read(*answers: dict[str, Any], start: int = 100, end: int = 100) -> tuple[Any, Any]:
    return read_logs(json.dumps(answers).encode(), frozenset({CONTRACT}), start, end)


@given(UUIDS, ADDRESSES, ADDRESSES, UINTS, ADDRESSES)
def test_payment_logs_are_decoded(
    uuid: bytes, payer: bytes, token: bytes, amount: int, receiver: bytes
) -> None:
    logs, _ = read(paid_log(uuid, payer, token, amount, receiver))

    place = (100, BLOCK_HASH, TX_HASH, 7)
    assert logs == (PaidLog(CONTRACT, uuid, payer, token, amount, receiver, *place),)


@given(UUIDS, UUIDS, ADDRESSES, UINTS, ADDRESSES, ADDRESSES)
def test_refund_logs_are_decoded(
    uuid: bytes, refund_id: bytes, token: bytes, amount: int, to: bytes, sender: bytes
) -> None:
    _, refunds = read(refunded_log(uuid, refund_id, token, amount, to, sender))

    place = (100, BLOCK_HASH, TX_HASH, 7)
    assert refunds == (RefundedLog(CONTRACT, uuid, refund_id, token, amount, to, sender, *place),)


def replace_fields(answer: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {**answer, **fields}


def with_topic(answer: dict[str, Any], number: int, text: str) -> dict[str, Any]:
    topics = list(answer["topics"])
    topics[number] = text
    return {**answer, "topics": topics}


P, R = paid_log(), refunded_log()
MALFORMED = {
    "no topics": replace_fields(P, topics=[]),
    "three topics": replace_fields(P, topics=P["topics"][:3]),
    "five topics": replace_fields(P, topics=[*P["topics"], P["topics"][1]]),
    "an unknown event": with_topic(P, 0, "0x" + 64 * "1"),
    "the refund event": with_topic(P, 0, R["topics"][0]),
    "no data": replace_fields(P, data="0x"),
    "a missing word": replace_fields(P, data=P["data"][:-64]),
    "an extra word": replace_fields(P, data=P["data"] + 64 * "0"),
    "half a byte": replace_fields(P, data=P["data"] + "0"),
    "invalid hex digits": replace_fields(P, data=P["data"][:-2] + "zz"),
    "spaces": replace_fields(P, data=P["data"][:-2] + "  "),
    "no prefix": replace_fields(P, data="00" + P["data"][2:]),
    "a dirty uuid": with_topic(P, 1, P["topics"][1][:-1] + "1"),
    "a dirty payer": with_topic(P, 2, "0x1" + P["topics"][2][3:]),
    "a dirty token": with_topic(P, 3, "0x" + 23 * "0" + "1" + P["topics"][3][26:]),
    "a dirty receiver": replace_fields(P, data=P["data"][:66] + "1" + P["data"][67:]),
    "a dirty refund id": with_topic(R, 2, R["topics"][2][:-1] + "1"),
    "a dirty destination": replace_fields(R, data=R["data"][:66] + "1" + R["data"][67:]),
    "a dirty sender": replace_fields(R, data=R["data"][:130] + "1" + R["data"][131:]),
    "removed": replace_fields(P, removed=True),
    "a short address": replace_fields(P, address=P["address"][:-2]),
    "a short block hash": replace_fields(P, blockHash=P["blockHash"][:-2]),
    "a long transaction hash": replace_fields(P, transactionHash=P["transactionHash"] + "00"),
    "a pending block": replace_fields(P, blockNumber=None),
    "a negative number": replace_fields(P, blockNumber="0x-64"),
    "an underscore": replace_fields(P, logIndex="0x1_0"),
    "a number that is too large": replace_fields(P, logIndex="0x8000000000000000"),
    "an empty number": replace_fields(P, logIndex="0x"),
    "a number instead of text": replace_fields(P, logIndex=7),
    "a foreign contract": replace_fields(P, address="0x" + 40 * "d"),
    "an earlier block": replace_fields(P, blockNumber="0x63"),
    "a later block": replace_fields(P, blockNumber="0x65"),
}


@pytest.mark.parametrize("answer", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_log_is_rejected(answer: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        read(answer)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (P, P),
        (P, replace_fields(P, blockNumber="0x65", blockHash="0x" + 64 * "1")),
        (P, replace_fields(P, transactionHash="0x" + 64 * "1")),
        (P, replace_fields(R, transactionHash="0x" + 64 * "1")),
        (P, replace_fields(P, logIndex="0x8", blockHash="0x" + 64 * "1")),
    ],
    ids=["duplicate", "two blocks", "same index", "two kinds with the same index", "two hashes"],
)
def test_contradictory_logs_are_rejected(first: dict[str, Any], second: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"duplicate|two"):
        read(first, second, end=101)


def test_logs_are_returned_in_chain_order() -> None:
    later = replace_fields(P, logIndex="0xa")
    last = replace_fields(P, logIndex="0x0", blockNumber="0x65", blockHash="0x" + 64 * "1")

    logs, _ = read(last, later, P, end=101)

    assert [(item.block_number, item.log_index) for item in logs] == [(100, 7), (100, 10), (101, 0)]


def test_uppercase_hex_digits_are_accepted() -> None:
    upper = {
        name: "0x" + text[2:].upper()
        for name, text in P.items()
        if isinstance(text, str) and name != "transactionIndex"
    }
    topics = ["0x" + topic[2:].upper() for topic in P["topics"]]

    assert read(replace_fields(P, **upper, topics=topics)) == read(P)


@pytest.mark.parametrize("answer", MALFORMED.values(), ids=MALFORMED)
def test_foreign_logs_in_a_receipt_are_ignored(answer: dict[str, Any]) -> None:
    """Any contract can emit such a log in the same transaction as our contract."""
    try:
        rpc_logs = [msgspec.convert(item, RpcLog) for item in (answer, P)]
    except msgspec.ValidationError:
        return  # no node returns this, even if a contract misbehaves

    logs, refunds = read_matching_logs(rpc_logs)

    assert refunds == ()
    assert [
        item for item in logs if item.contract == CONTRACT and item.block_number == 100
    ] == list(read(P)[0])
