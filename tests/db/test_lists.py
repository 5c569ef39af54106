"""The pages of a list contain every matching row once, in key order."""

from itertools import product
from typing import Any
from uuid import UUID

from payintent.db.lists import KeysetList
from tests.support.world import World

ROWS = """
    SELECT n, lpad(n::text, 32, '0')::uuid AS id, n / 3 AS third, n % 2 = 0 AS even, 1 AS merchant
    FROM generate_series(1, 20) n
"""
SOURCE = "SELECT * FROM (" + ROWS + ") r"


async def _pages(world: World, rows: KeysetList, first: Any, key: Any, **values: object) -> Any:
    last, numbers = first, list[int]()
    while page := await rows.page(world.service.database, last, 3, **values):
        assert len(page) <= 3
        numbers += [row["n"] for row in page]
        last = key(page[-1])
    return numbers


async def test_pages_contain_each_row_that_matches_the_filters_once(world: World) -> None:
    for oldest_first, even, third in product((False, True), (None, True, False), (None, 4)):
        rows = KeysetList(
            SOURCE,
            "id",
            "n <> {without}",
            oldest_first=oldest_first,
            even="even = {}",
            third="third = {}",
        )
        text = rows.text
        expected = [
            n
            for n in range(1, 21)
            if n != 7 and even in (None, n % 2 == 0) and third in (None, n // 3)
        ]
        numbers = await _pages(
            world, rows, None, lambda row: row["id"], without=7, even=even, third=third
        )
        assert numbers == (expected if oldest_first else expected[::-1])
        assert rows.text == text


async def test_an_id_breaks_ties_between_rows_with_the_same_key(world: World) -> None:
    rows = KeysetList(SOURCE, "third, id")
    first = (100, UUID(int=0))
    numbers = await _pages(world, rows, first, lambda row: (row["third"], row["id"]))
    assert numbers == list(range(20, 0, -1))


async def test_a_list_can_read_from_the_rows_of_an_inner_list(world: World) -> None:
    rows = KeysetList(SOURCE, "id", merchant="merchant").as_cte(
        "newest AS", "10", "SELECT * FROM newest", "merchant, id", even="even = {}"
    )
    page = await rows.page(world.service.database, None, 20, merchant_id=1, even=True)
    assert [row["n"] for row in page] == [20, 18, 16, 14, 12]
