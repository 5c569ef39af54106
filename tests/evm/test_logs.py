"""Logs are parsed as eth-abi writes them, and rejected in any other form."""

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
    """Return a log as a node writes it, built with eth-abi."""
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


def paid(
    uuid: bytes = 16 * b"u",
    payer: bytes = 20 * b"p",
    token: bytes = 20 * b"t",
    amount: int = 5,
    receiver: bytes = 20 * b"r",
) -> dict[str, Any]:
    indexed = [("bytes16", uuid), ("address", payer), ("address", token)]
    return log(PAID, indexed, [("uint256", amount), ("address", receiver)])


def refunded(
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
    told, _ = read(paid(uuid, payer, token, amount, receiver))

    place = (100, BLOCK_HASH, TX_HASH, 7)
    assert told == (PaidLog(CONTRACT, uuid, payer, token, amount, receiver, *place),)


@given(UUIDS, UUIDS, ADDRESSES, UINTS, ADDRESSES, ADDRESSES)
def test_refund_logs_are_decoded(
    uuid: bytes, refund_id: bytes, token: bytes, amount: int, to: bytes, sender: bytes
) -> None:
    _, told = read(refunded(uuid, refund_id, token, amount, to, sender))

    place = (100, BLOCK_HASH, TX_HASH, 7)
    assert told == (RefundedLog(CONTRACT, uuid, refund_id, token, amount, to, sender, *place),)


def changed(answer: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {**answer, **fields}


def with_topic(answer: dict[str, Any], number: int, text: str) -> dict[str, Any]:
    topics = list(answer["topics"])
    topics[number] = text
    return {**answer, "topics": topics}


P, R = paid(), refunded()
MALFORMED = {
    "no topics": changed(P, topics=[]),
    "three topics": changed(P, topics=P["topics"][:3]),
    "five topics": changed(P, topics=[*P["topics"], P["topics"][1]]),
    "another event": with_topic(P, 0, "0x" + 64 * "1"),
    "the other event": with_topic(P, 0, R["topics"][0]),
    "no data": changed(P, data="0x"),
    "a word too few": changed(P, data=P["data"][:-64]),
    "a word too many": changed(P, data=P["data"] + 64 * "0"),
    "half a byte": changed(P, data=P["data"] + "0"),
    "no hex digits": changed(P, data=P["data"][:-2] + "zz"),
    "a blank": changed(P, data=P["data"][:-2] + "  "),
    "no prefix": changed(P, data="00" + P["data"][2:]),
    "a dirty uuid": with_topic(P, 1, P["topics"][1][:-1] + "1"),
    "a dirty payer": with_topic(P, 2, "0x1" + P["topics"][2][3:]),
    "a dirty token": with_topic(P, 3, "0x" + 23 * "0" + "1" + P["topics"][3][26:]),
    "a dirty receiver": changed(P, data=P["data"][:66] + "1" + P["data"][67:]),
    "a dirty refund id": with_topic(R, 2, R["topics"][2][:-1] + "1"),
    "a dirty destination": changed(R, data=R["data"][:66] + "1" + R["data"][67:]),
    "a dirty sender": changed(R, data=R["data"][:130] + "1" + R["data"][131:]),
    "taken back": changed(P, removed=True),
    "a short address": changed(P, address=P["address"][:-2]),
    "a short block hash": changed(P, blockHash=P["blockHash"][:-2]),
    "a long transaction hash": changed(P, transactionHash=P["transactionHash"] + "00"),
    "a waiting block": changed(P, blockNumber=None),
    "a negative number": changed(P, blockNumber="0x-64"),
    "an underscore": changed(P, logIndex="0x1_0"),
    "a number too large": changed(P, logIndex="0x8000000000000000"),
    "an empty number": changed(P, logIndex="0x"),
    "a number, not text": changed(P, logIndex=7),
    "a foreign contract": changed(P, address="0x" + 40 * "d"),
    "a block before": changed(P, blockNumber="0x63"),
    "a block behind": changed(P, blockNumber="0x65"),
}


@pytest.mark.parametrize("answer", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_log_is_rejected(answer: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        read(answer)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (P, P),
        (P, changed(P, blockNumber="0x65", blockHash="0x" + 64 * "1")),
        (P, changed(P, transactionHash="0x" + 64 * "1")),
        (P, changed(R, transactionHash="0x" + 64 * "1")),
        (P, changed(P, logIndex="0x8", blockHash="0x" + 64 * "1")),
    ],
    ids=["twice", "in two blocks", "at one place", "two kinds at one place", "two hashes"],
)
def test_contradictory_logs_are_rejected(one: dict[str, Any], other: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"duplicate|two"):
        read(one, other, end=101)


def test_logs_are_returned_in_chain_order() -> None:
    later = changed(P, logIndex="0xa")
    last = changed(P, logIndex="0x0", blockNumber="0x65", blockHash="0x" + 64 * "1")

    told, _ = read(last, later, P, end=101)

    assert [(item.block_number, item.log_index) for item in told] == [(100, 7), (100, 10), (101, 0)]


def test_uppercase_hex_digits_are_accepted() -> None:
    upper = {
        name: "0x" + text[2:].upper()
        for name, text in P.items()
        if isinstance(text, str) and name != "transactionIndex"
    }
    topics = ["0x" + topic[2:].upper() for topic in P["topics"]]

    assert read(changed(P, **upper, topics=topics)) == read(P)


@pytest.mark.parametrize("answer", MALFORMED.values(), ids=MALFORMED)
def test_foreign_logs_in_a_receipt_are_ignored(answer: dict[str, Any]) -> None:
    """Any contract can write such a log next to ours, in the same transaction."""
    try:
        listed = [msgspec.convert(item, RpcLog) for item in (answer, P)]
    except msgspec.ValidationError:
        return  # no node writes this, whatever a contract does

    logs, refunds = read_matching_logs(listed)

    assert refunds == ()
    assert [
        item for item in logs if item.contract == CONTRACT and item.block_number == 100
    ] == list(read(P)[0])
