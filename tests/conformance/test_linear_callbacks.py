"""The cost of hostile callbacks with a valid signature is proportional to their length.

A signature protects the parser from strangers, but not from a gateway's mistakes or from a stolen
secret. The cost is counted in executed lines of Python, including libraries: twice as many
bytes may execute at most twice as many lines. C code has no lines;
`tests/test_linear_patterns.py` checks that regular expressions are linear.
"""

import re
from collections.abc import Callable, Iterator

import pytest

from payintent.core.texts import mask_card_data
from payintent.gateways.port import (
    CallbackRequest,
    GatewayAccount,
    GatewaySessionState,
    InvalidCallbackError,
    VerifiedCallback,
)
from tests.conformance.arrange import open_paid_session, wait_for_session_callback
from tests.conformance.harness import Harness
from tests.conformance.traits import where
from tests.support.steps import HOSTILE, count_steps

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    where(lambda adapter, **_: adapter.makes_callbacks),
    pytest.mark.full,
]

Parse = Callable[[GatewayAccount, CallbackRequest], VerifiedCallback]
Make = Callable[[int], bytes]

_BYTES_MAX = 64 * 1024
_EXTRA_LINES = 600  # caches and the place of the rejection differ between two bodies
_WORD = re.compile(rb"\w+")
_WORDS_MAX = 40
#: Insertions that inflate a word of a genuine payload: a long value, many fields, many levels.
_PARTS = (b"9", b"a.", b"\\ud83d", b"%25", b"[", b'","a":"', b"&a=1")


async def test_the_cost_of_hostile_signed_callbacks_is_linear(
    harness: Harness,
) -> None:
    for name, make in HOSTILE.items():
        _check_linear(harness, harness.gateway.parse_callback, name, make)


async def test_the_cost_of_inflated_genuine_callbacks_is_linear(
    harness: Harness,
) -> None:
    request, _ = await wait_for_session_callback(
        harness, await open_paid_session(harness), GatewaySessionState.CAPTURED
    )
    accepted = 0
    for name, make in _inflate(harness.payload(request)):
        accepted += _check_linear(harness, harness.gateway.parse_callback, name, make)
    assert accepted, "all payloads were rejected by the signature or the first check"


async def test_a_parser_that_restarts_at_every_byte_is_detected(harness: Harness) -> None:
    """The count detects a loop over the remaining bytes at each byte."""

    def parse(account: GatewayAccount, request: CallbackRequest) -> VerifiedCallback:
        for start in range(len(request.body)):
            for _ in request.body[start:]:
                pass
        return harness.gateway.parse_callback(account, request)

    with pytest.raises(AssertionError, match="digits"):
        _check_linear(harness, parse, "digits", HOSTILE["digits"], size=512)


def _inflate(facts: bytes) -> Iterator[tuple[str, Make]]:
    """Return genuine bodies with an extremely long string."""
    words = list(_WORD.finditer(facts))
    for number, word in enumerate(words[:: len(words) // _WORDS_MAX + 1]):
        part = _PARTS[number % len(_PARTS)]

        def make(size: int, end: int = word.end(), part: bytes = part) -> bytes:
            return facts[:end] + part * (size // len(part)) + facts[end:]

        yield f"{word[0]!r} with {part!r}", make


def _check_linear(
    harness: Harness, parse: Parse, name: str, make: Make, size: int | None = None
) -> bool:
    """Check that the cost is linear; return whether the full body was accepted."""
    size = size or min(_BYTES_MAX, harness.gateway.capabilities.callback_bytes_max)
    half, _ = _cost(harness, parse, make(size // 2))
    whole, accepted = _cost(harness, parse, make(size))
    assert 0 < whole <= 2 * half + _EXTRA_LINES, (harness.gateway.provider, name, half, whole)
    return accepted


def _cost(harness: Harness, parse: Parse, payload: bytes) -> tuple[int, bool]:
    """Count the lines of a parser and of the code before the body is stored."""
    request = harness.signed(payload, harness.account)
    with count_steps() as steps:
        try:
            callback = parse(harness.account, request)
        except InvalidCallbackError:
            return steps.count, False
        mask_card_data(callback.stored_body or request.body)
        harness.gateway.acknowledge(callback)
    return steps.count, True
