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

#: One pass each over what they are given, whatever its content: they search for two bytes at most.
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
def test_brackets_in_strings_are_no_levels(value: object) -> None:
    assert nesting_depth(json.dumps(value).encode()) == _depth(value)


def _called(body: bytes) -> list[str]:
    """The Python and C calls of a depth count, by name."""
    calls: list[str] = []

    def note(frame: FrameType, event: str, function: Any) -> None:
        if event in {"call", "c_call"}:
            calls.append(frame.f_code.co_name if event == "call" else function.__name__)

    sys.setprofile(note)
    try:
        nesting_depth(body)
    finally:
        sys.setprofile(None)
    assert (calls.pop(0), calls.pop()) == ("nesting_depth", "setprofile")
    return calls


@pytest.mark.parametrize("name", HOSTILE)
def test_levels_are_counted_in_the_same_few_passes_whatever_the_length(name: str) -> None:
    short, long = _called(HOSTILE[name](1_000)), _called(HOSTILE[name](64_000))
    assert short == long
    assert set(long) <= _ONE_PASS
    assert len(long) < 10


@pytest.mark.timeout(30)  # it took minutes, and nothing else was answered meanwhile
async def test_a_string_without_an_end_freezes_nothing(api: Api) -> None:
    body = b"{" * 201 + b'"' + b'\\"' * 31_900
    headers = {"Content-Type": "application/json"}
    answer = await api.send("POST", "/v1/onramp/orders", data=body, headers=headers)
    assert refusal(answer) == (400, "BAD_REQUEST")
