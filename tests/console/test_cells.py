"""The page of cells: what each is, how it does, and what may be done with it."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from payintent.domain.operator import Role
from payintent.service import open_service
from tests.console.visitor import signed_in, words
from tests.support.cell_schema import OF_CELLS
from tests.support.cells import with_cells
from tests.support.databases import Databases
from tests.support.operator_port import operator_port
from tests.support.patience import until
from tests.support.two_cells import TwoCells, two_cells
from tests.support.world import Api, World

_NOT_READABLE = "Database not readable "


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
    assert "A cell is away from the runbook" in page
    assert b"cell/drain" not in answer.body, "a viewer changes nothing"
    await made.back(1)


@OF_CELLS
async def test_a_cell_that_is_frozen_keeps_nothing_of_the_others_from_the_page(
    two: tuple[TwoCells, Api],
) -> None:
    made, operator = two
    visitor = await signed_in(operator)
    await made.away(1, frozen=True)
    page = words(await visitor.get("/cells"))
    control, other = page.split("Cell 1 ")
    assert "Open payments 0 " in control
    assert "no answer in time" in other
    assert "Copies of what is set up not known" in other
    await made.back(1)


@OF_CELLS
async def test_every_page_says_while_a_cell_is_away_and_leads_to_cells(
    two: tuple[TwoCells, Api],
) -> None:
    made, operator = two
    visitor = await signed_in(operator, role=Role.VIEWER)
    assert "has not answered" not in words(await visitor.get("/operations"))
    await made.away(1)

    async def is_noticed() -> bool:
        answer = await visitor.get("/operations")
        return "Cell 1 has not answered for" in words(answer) and b'href="/cells">W' in answer.body

    await until(is_noticed, "a process that copies has noticed it")
    assert "has not answered for" not in words(await visitor.get("/cells")), "it says more itself"
    assert "Away since" in words(await visitor.get("/cells"))
    visitor.cookies.clear()
    assert "has not answered" not in words(await visitor.get("/sign-in"))
    await made.back(1)
    again = await signed_in(operator, name="bob", role=Role.VIEWER)

    async def is_over() -> bool:
        return "has not answered" not in words(await again.get("/operations"))

    await until(is_over, "it answers again")


async def test_with_one_cell_the_page_says_so_and_is_in_no_menu(operator: Api) -> None:
    visitor = await signed_in(operator)
    page = words(await visitor.get("/cells"))
    assert "All payments are in this cell." in page
    assert "Move a merchant" not in page
    assert b'href="/cells"' not in (await visitor.get("/")).body


@OF_CELLS
@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (
            "postgresql://me:s3cr3t@one:5432,two:5433/payintent?search_path=cell_1&sslmode=disable",
            "Database one:5432, two:5433/payintent, schema cell_1 ",
        ),
        ("postgresql://me:12/s3cr3t@one:5432/payintent", _NOT_READABLE),
        ("postgresql://me:s3@cr3t@one:5432/payintent", _NOT_READABLE),
        ("postgresql://me:12#s3cr3t@one:5432/payintent", _NOT_READABLE),
        ("postgresql://me:12?search_path=s3cr3t@one:5432/payintent", _NOT_READABLE),
        ("host=one dbname=payintent user=me password=s3cr3t", _NOT_READABLE),
    ],
)
async def test_an_address_is_shown_without_the_login_and_not_at_all_where_it_is_not_certain(
    world: World, url: str, shown: str
) -> None:
    settings = with_cells(world.service.settings, {1: url})
    service = await open_service(settings, {"fake": world.gateway})
    async with operator_port(settings, replace(world, service=service), service) as operator:
        await world.rows("INSERT INTO cell (number) VALUES (1)")
        visitor = await signed_in(operator, role=Role.VIEWER)
        for path in ("/cells", "/operations/cell/list", "/operations/cell/show?number=1"):
            answer = await visitor.get(path)
            page = words(answer)
            assert shown.removeprefix("Database ") in page, path
            assert "cr3t" not in page
            assert "me:" not in page
        assert shown in words(await visitor.get("/cells"))
    await service.close()
