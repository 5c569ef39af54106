"""How deep a body is nested is counted in linear time, whatever the body."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payintent.api.request_body import nesting_depth
from tests.api.arrange import refusal
from tests.support.world import Api

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


@pytest.mark.timeout(30)  # it took minutes, and nothing else was answered meanwhile
async def test_a_string_without_an_end_freezes_nothing(api: Api) -> None:
    body = b"{" * 201 + b'"' + b'\\"' * 31_900
    headers = {"Content-Type": "application/json"}
    answer = await api.send("POST", "/v1/onramp/orders", data=body, headers=headers)
    assert refusal(answer) == (400, "BAD_REQUEST")
