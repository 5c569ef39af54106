"""The nesting depth of any body is counted in linear time."""

import json
import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payintent.http.bodies import nesting_depth
from tests.support.arrange import refusal
from tests.support.steps import HOSTILE
from tests.support.world import Api

#: Each makes a single pass over its input, and searches for at most two bytes.
_ONE_PASS = {"replace", "split", "join", "translate", "max"}

_LEAVES = st.text('{[]}"\\ a') | st.none()
_JSON = st.recursive(
    _LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text('{[]}"\\ a'), inner)
)


def _depth(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(_depth, value), default=0)
    return 0


@given(_JSON)
def test_brackets_in_strings_do_not_count_as_levels(value: object) -> None:
    assert nesting_depth(json.dumps(value).encode()) == _depth(value)


def _record_calls(body: bytes) -> list[str]:
    """Return the names of the Python and C functions that a depth count calls."""
    calls: list[str] = []

    def record(frame: FrameType, event: str, function: Any) -> None:
        if event in {"call", "c_call"}:
            calls.append(frame.f_code.co_name if event == "call" else function.__name__)

    sys.setprofile(record)
    try:
        nesting_depth(body)
    finally:
        sys.setprofile(None)
    assert (calls.pop(0), calls.pop()) == ("nesting_depth", "setprofile")
    return calls


@pytest.mark.parametrize("name", HOSTILE)
def test_the_number_of_passes_does_not_depend_on_the_length(name: str) -> None:
    short, long = _record_calls(HOSTILE[name](1_000)), _record_calls(HOSTILE[name](64_000))
    assert short == long
    assert set(long) <= _ONE_PASS
    assert len(long) < 10


@pytest.mark.timeout(30)  # a regression would block the service for minutes
async def test_an_unterminated_string_does_not_block_the_service(api: Api) -> None:
    body = b"{" * 201 + b'"' + b'\\"' * 31_900
    headers = {"Content-Type": "application/json"}
    answer = await api.send("POST", "/v1/onramp/orders", data=body, headers=headers)
    assert refusal(answer) == (400, "BAD_REQUEST")
