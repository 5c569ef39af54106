"""The page of cells: what each is, how it does, and what may be done with it."""

from collections.abc import AsyncIterator

import pytest

from payintent.console.cells import list_addresses
from payintent.domain.operator import Role
from tests.console.visitor import signed_in, words
from tests.support.cell_schema import OF_CELLS
from tests.support.cells import with_cells
from tests.support.databases import Databases
from tests.support.operator_port import operator_port
from tests.support.two_cells import TwoCells, two_cells
from tests.support.world import Api, World


@pytest.fixture
async def two(world: World, databases: Databases) -> AsyncIterator[tuple[TwoCells, Api]]:
    async with two_cells(world, databases) as made:
        service = made.world.service
        async with operator_port(service.settings, made.world, service) as operator:
            yield made, operator


@OF_CELLS
async def test_each_cell_is_shown_with_its_size_its_load_and_its_copies(
    two: tuple[TwoCells, Api],
) -> None:
    made, operator = two
    for _ in range(3):
        await made.pay(made.world.merchant_id)
    visitor = await signed_in(operator)
    answer = await visitor.get("/cells")
    page = words(answer)
    assert page.count(" answers ") == 2
    control, other = page.split("Cell 1 ")
    assert "Created in the last minute 0 " in control
    assert "Copies of what is set up" not in control
    assert "Merchants whose new payments are here 1 " in other
    assert "Created in the last minute 3 " in other
    assert "Copies of what is set up as cell 0 has it" in other
    for link in (b"cell/drain?number=1", b"cell/show?number=0", b"cell/copy-anew?number=1"):
        assert link in answer.body
    assert b"cell/drain?number=0" not in answer.body
    assert b'href="/cells"' in (await visitor.get("/")).body


@OF_CELLS
async def test_a_cell_that_is_away_holds_nobody_up_and_says_why(
    two: tuple[TwoCells, Api],
) -> None:
    made, operator = two
    visitor = await signed_in(operator, role=Role.VIEWER)
    await made.away(1)
    answer = await visitor.get("/cells")
    page = words(answer)
    assert answer.status == 200
    assert "It does not answer: the database cannot be reached" in page
    assert page.count(" answers ") == 1
    assert b"cell/drain" not in answer.body, "a viewer changes nothing"
    await made.back(1)


async def test_with_one_cell_the_page_says_so_and_is_in_no_menu(operator: Api) -> None:
    visitor = await signed_in(operator)
    page = words(await visitor.get("/cells"))
    assert "All payments are in this cell." in page
    assert "Move a merchant" not in page
    assert b'href="/cells"' not in (await visitor.get("/")).body


def test_an_address_has_no_password_and_all_hosts(world: World) -> None:
    url = "postgresql://me:s3cret@one:5432,two:5433/payintent?search_path=cell_1&sslmode=disable"
    settings = with_cells(world.service.settings, {1: url})
    assert list_addresses(settings)[1] == "one:5432, two:5433/payintent, schema cell_1"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:12/s3cr3t@one:5432/payintent",
        "postgresql://me:s3@cr3t@one:5432/payintent",
        "postgresql://me:12#s3cr3t@one:5432/payintent",
        "postgresql://me:12?search_path=s3cr3t@one:5432/payintent",
        "host=one dbname=payintent user=me password=s3cr3t",
    ],
)
def test_an_address_that_may_be_meant_otherwise_is_not_shown_at_all(world: World, url: str) -> None:
    settings = with_cells(world.service.settings, {1: url})
    assert list_addresses(settings)[1] == "not readable"
