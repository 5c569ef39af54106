"""The setting that says where cells are."""

import json
from typing import Any

import pytest

from payintent.domain.cell_addresses import CellAddress, parse_cell_addresses


def test_addresses_are_read_by_the_numbers_of_their_cells() -> None:
    text = """{"12": {"url": "postgresql://b", "direct_url": "postgresql://c", "pooled": true},
        "1": {"url": "postgresql://a", "read_url": "postgresql://r"}}"""
    found = parse_cell_addresses(text)
    assert list(found) == [1, 12]
    assert found[1] == CellAddress(url="postgresql://a", read_url="postgresql://r")
    assert found[12] == CellAddress(url="postgresql://b", direct_url="postgresql://c", pooled=True)


@pytest.mark.parametrize("text", ["", " \n", "{}"])
def test_without_an_entry_there_is_no_other_cell(text: str) -> None:
    assert parse_cell_addresses(text) == {}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("postgresql://secret", "is not as"),
        ("[]", "is not as"),
        ('{"1": "postgresql://secret"}', "is not as"),
        ({"0": {"url": "secret"}}, "no cell from 1 to 1023"),
        ({"1024": {"url": "secret"}}, "no cell from 1 to 1023"),
        ({"01": {"url": "secret"}}, "no cell from 1 to 1023"),
        ({"secret": {"url": "secret"}}, "no cell from 1 to 1023"),
        ({"1": {}}, "has no url for cell 1"),
        ({"1": {"url": ""}}, "has no url for cell 1"),
        ({"1": {"url": 5}}, "has a url for cell 1 that is no text"),
        ({"1": {"url": "secret", "read_url": None}}, "has a read_url for cell 1 that is no text"),
        ({"1": {"url": "secret", "secret": "x"}}, "what is none of url, direct_url, read_url"),
        ({"1": {"url": "secret", "pooled": "yes"}}, "neither true nor false"),
        ({"1": {"url": "secret", "pooled": True}}, "behind a pooler, and no direct_url"),
    ],
)
def test_what_is_no_address_is_refused_and_not_repeated(given: Any, why: str) -> None:
    text = given if isinstance(given, str) else json.dumps(given)
    with pytest.raises(ValueError, match=why) as refused:
        parse_cell_addresses(text)
    assert "secret" not in str(refused.value)
