"""Calls and words are encoded as in eth-abi, and names match the compiled contracts."""

from collections.abc import Callable
from typing import Any

import pytest
from eth_abi import encode
from hypothesis import given
from hypothesis import strategies as some

from payintent.chains.checks import RECEIVER_SELECTOR
from payintent.evm import abi, event_logs
from payintent.evm.abi import keccak
from payintent.evm.port import PayCall
from payintent_sandbox.chains.contracts import GATEWAY, PLAIN_TOKEN, load

UINTS = some.integers(0, 2**256 - 1) | some.integers(0, 1_000)
ADDRESSES = some.binary(min_size=20, max_size=20)
UUIDS = some.binary(min_size=16, max_size=16)
SOME = {"uint256": UINTS, "address": ADDRESSES, "bytes16": UUIDS}
PAY = abi.encode_pay(16 * b"u", 20 * b"t", 7, 9)


@pytest.mark.parametrize(
    ("contract", "function", "selector"),
    [
        (GATEWAY, "pay", abi.PAY),
        (GATEWAY, "refund", abi.REFUND),
        (GATEWAY, "is_paid", abi.IS_PAID),
        (PLAIN_TOKEN, "approve", abi.APPROVE),
        (PLAIN_TOKEN, "allowance", abi.ALLOWANCE),
        (PLAIN_TOKEN, "balanceOf", abi.BALANCE_OF),
        (PLAIN_TOKEN, "decimals", abi.DECIMALS),
    ],
)
def test_selectors_match_the_compiled_contracts(
    contract: str, function: str, selector: bytes
) -> None:
    assert load(contract).selector(function) == f"0x{selector.hex()}"


@pytest.mark.parametrize(
    ("signature", "selector"),
    [
        (abi.PAY_SIGNATURE, abi.PAY),
        ("Error(string)", abi.ERROR),
        ("Panic(uint256)", abi.PANIC),
        ("receiver()", RECEIVER_SELECTOR),
    ],
)
def test_literal_selectors_match_their_signatures(signature: str, selector: bytes) -> None:
    assert keccak(signature.encode())[:4] == selector


def test_the_pay_signature_matches_the_compiled_contract() -> None:
    assert abi.PAY_SIGNATURE in load(GATEWAY).selectors


def test_topics_match_the_compiled_contract() -> None:
    topics = {"Paid": event_logs.PAID, "Refunded": event_logs.REFUNDED}
    assert load(GATEWAY).topics == {name: f"0x{topic.hex()}" for name, topic in topics.items()}


@pytest.mark.parametrize(
    ("function", "selector", "types"),
    [
        (abi.encode_pay, abi.PAY, ["bytes16", "address", "uint256", "uint256"]),
        (abi.encode_refund, abi.REFUND, ["bytes16", "bytes16", "address", "address", "uint256"]),
        (abi.encode_is_paid, abi.IS_PAID, ["bytes16", "address", "uint256"]),
        (abi.encode_approve, abi.APPROVE, ["address", "uint256"]),
        (abi.encode_allowance, abi.ALLOWANCE, ["address", "address"]),
        (abi.encode_balance_of, abi.BALANCE_OF, ["address"]),
        (abi.encode_decimals, abi.DECIMALS, []),
    ],
)
@given(data=some.data())
def test_calls_are_encoded_as_in_eth_abi(
    function: Callable[..., bytes], selector: bytes, types: list[str], data: some.DataObject
) -> None:
    arguments: list[Any] = [data.draw(SOME[item]) for item in types]

    assert function(*arguments) == selector + encode(types, arguments)


@given(UUIDS, ADDRESSES, UINTS, UINTS)
def test_an_encoded_pay_call_can_be_decoded(
    uuid: bytes, token: bytes, amount: int, deadline: int
) -> None:
    call = abi.read_pay(abi.encode_pay(uuid, token, amount, deadline))

    assert call == PayCall(uuid, token, amount, deadline)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        PAY[:-1],
        PAY + b"\0",
        b"\0" + PAY[1:],
        PAY[:20] + b"\1" + PAY[21:],  # a nonzero byte in the uuid's padding
        PAY[:47] + b"\1" + PAY[48:],  # a nonzero byte in the token's padding
    ],
    ids=["empty", "short", "long", "other function", "dirty uuid", "dirty token"],
)
def test_a_call_that_is_not_pay_is_not_decoded(data: bytes) -> None:
    assert abi.read_pay(data) is None


@pytest.mark.parametrize(
    "call",
    [
        lambda: abi.encode_pay(15 * b"u", 20 * b"t", 1, 1),
        lambda: abi.encode_pay(16 * b"u", 21 * b"t", 1, 1),
        lambda: abi.encode_pay(16 * b"u", 20 * b"t", -1, 1),
        lambda: abi.encode_pay(16 * b"u", 20 * b"t", 1, 2**256),
    ],
)
def test_arguments_that_do_not_fit_a_word_are_rejected(call: Callable[[], bytes]) -> None:
    with pytest.raises(ValueError, match=r"bytes|bits"):
        call()


@pytest.mark.parametrize(
    ("read", "word"),
    [
        (abi.to_uint, bytes(31)),
        (abi.to_uint, bytes(33)),
        (abi.to_address, bytes(11) + b"\1" + bytes(20)),
        (abi.to_address, bytes(20)),
        (abi.to_uuid, bytes(16) + b"\1" + bytes(15)),
        (abi.to_uuid, bytes(16)),
    ],
)
def test_dirty_and_truncated_words_are_rejected(read: Callable[[bytes], Any], word: bytes) -> None:
    with pytest.raises(ValueError, match=r"word|address|uuid"):
        read(word)


@given(some.text(max_size=100))
def test_an_encoded_revert_reason_is_decoded(reason: str) -> None:
    data = bytes.fromhex("08c379a0") + encode(["string"], [reason])

    assert abi.decode_revert_reason(data) == abi.sanitize_text(reason)


@given(some.binary(max_size=200))
def test_malformed_revert_reasons_never_raise(rest: bytes) -> None:
    for head in (b"", bytes.fromhex("08c379a0"), bytes.fromhex("4e487b71")):
        assert abi.sanitize_text(abi.decode_revert_reason(head + rest)) == abi.decode_revert_reason(
            head + rest
        )


@pytest.mark.parametrize("size", [0, 63, 65, 96])
def test_data_with_an_unexpected_number_of_words_is_rejected(size: int) -> None:
    assert abi.split_words(bytes(64), 2) == 2 * [bytes(32)]
    with pytest.raises(ValueError, match="2 words"):
        abi.split_words(bytes(size), 2)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", ""),
        (bytes.fromhex("08c379a0"), ""),
        (bytes.fromhex("08c379a0") + encode(["uint256", "uint256"], [32, 2**255]), ""),
        (bytes.fromhex("08c379a0") + encode(["uint256", "uint256"], [32, 6]) + b"cut!!", ""),
        (bytes.fromhex("4e487b71") + encode(["uint256"], [0x11]), "panic 0x11"),
        (bytes.fromhex("cafebabe") + bytes(64), "0xcafebabe"),
        (bytes.fromhex("08c379a0") + encode(["string"], ["a\n\x1b[31mb"]), "a\ufffd\ufffd[31mb"),
        (bytes.fromhex("08c379a0") + encode(["string"], [1_000 * "x"]), 200 * "x"),
    ],
)
def test_revert_reasons_are_truncated_and_sanitized(data: bytes, reason: str) -> None:
    assert abi.decode_revert_reason(data) == reason
