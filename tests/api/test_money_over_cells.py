"""What a merchant of two cells is owed, its statements and disputes: all of it, or no answer."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from payintent.domain import ids
from payintent.domain.gateway import DisputeReport, DisputeState
from payintent.domain.member import MemberRole
from payintent.operations.accounts import AddAccount
from payintent.operations.chains import ListChains
from payintent.payments.close_statements import close_due_days
from payintent.storage.merge_lists import cells_away
from payintent.storage.onchain import chains
from tests.portal.person import Person, member, words
from tests.support.cell_schema import OF_CELLS
from tests.support.cells import copy_tables
from tests.support.databases import Databases
from tests.support.serving import serving_api
from tests.support.two_cells import TwoCells, two_cells
from tests.support.world import Answer, Api, World

pytestmark = OF_CELLS
_EARLIER = """
    INSERT INTO ledger_entry (fact_id, leg, merchant_id, currency, fact, debit, credit, amount,
        created_at)
    VALUES (gen_random_uuid(), 'whole', $1::bigint, 'THB', 'adjustment', 'bank',
        'merchant_payable:' || $1::bigint, $2, clock() - make_interval(days => $3))
"""
_CALLED = """
    INSERT INTO api_call (at, merchant_id, method, route, status, request_id, duration_us)
    VALUES (clock() - make_interval(mins => $2), $1, 'GET', $3, 200, 'r', 1)
"""
_PART = "A part of the service does not answer"


@dataclass
class Served:
    """A merchant of two cells, as its server and its members see it."""

    two: TwoCells
    api: Api
    finance: Person
    developer: Person

    async def read(self, path: str) -> Answer:
        return await self.api.send("GET", f"/v1/{path}", headers=self.api.bearer())

    async def list(self, path: str) -> tuple[list[dict[str, Any]], bool]:
        """Read a list; gives its rows, and whether they are all."""
        answer = await self.read(path)
        assert answer.status == 200, answer.body
        return answer.json["data"], "incomplete" not in answer.json

    async def enter(self, cell: int, satang: int, days: int) -> None:
        """Let something be owed since some days ago, and close the days that are over."""
        database = self.two.world.service.cells.at(cell)
        await database.fetch(_EARLIER, self.two.world.merchant_id, satang, days)
        while await close_due_days(database):
            pass

    async def add_own_account(self) -> None:
        """Give the merchant an account of its own at the gateway: cell 0 may have money of it."""
        world = self.two.world
        account = AddAccount(
            provider="fake",
            base_url="http://own.test",
            merchant_id=world.merchant_id,
            credentials={"signing_secret": "x"},
        )
        await world.perform(account)
        await copy_tables(world.service.cells)

    async def dispute(self) -> str:
        """Let a buyer pay in the present cell, and contest it; gives the payment's id."""
        payment = await self.two.pay(self.two.world.merchant_id)
        report = DisputeReport(
            reference=f"du-{payment.id}",
            capture=f"cap-{payment.id}",
            state=DisputeState.OPEN,
            amount_minor=50000,
            currency="THB",
        )
        assert (await self.two.tell(dispute=report)).payment_id == payment.id
        return ids.format_id(ids.PAYMENT, payment.id)

    async def move(self, cell: int) -> None:
        """Let the merchant have its new payments in another cell."""
        cells = self.two.world.service.cells
        await cells.control.fetch("UPDATE merchant_cell SET until = clock() WHERE until IS NULL")
        await cells.control.fetch(
            "INSERT INTO merchant_cell (merchant_id, cell) VALUES ($1, $2)",
            self.two.world.merchant_id,
            cell,
        )
        await copy_tables(cells)


@pytest.fixture
async def served(world: World, databases: Databases) -> AsyncIterator[Served]:
    async with (
        two_cells(world, databases, api_key_cache_s=0.0) as two,
        serving_api(two.world.service.settings, two.world) as api,
    ):
        finance, developer = await member(api, MemberRole.FINANCE), await member(api)
        yield Served(two, api, finance, developer)


async def test_statements_and_what_is_owed_are_of_all_cells_or_say_what_they_lack(
    served: Served,
) -> None:
    await served.add_own_account()
    await served.enter(1, 1_000_00, 4)
    await served.enter(0, 30_00, 3)  # names no payment: so it is in cell 0
    await served.enter(1, 200_00, 2)
    statements, is_whole = await served.list("statements")
    assert is_whole
    assert [(one["closing"], one["number"], one.get("series")) for one in statements] == [
        ("1200.00", 2, 1),
        ("30.00", 1, None),
        ("1000.00", 1, 1),
    ]
    assert await _pages(served, "statements") == [one["id"] for one in statements]
    assert (await served.list("balance"))[0] == [{"currency": "THB", "amount": "1230.00"}]
    for one in statements:
        read = (await served.read(f"statements/{one['id']}")).json
        assert [line["net"] for line in read["lines"]] == [one["adjustments"]]
        for file in ("lines.csv", "statement.pdf"):
            path = f"/merchant/statements/{one['id']}/{file}"
            assert (await served.finance.get(path)).status == 200
    shown = words(await served.finance.get("/merchant/statements"))
    assert "1230.00 THB" in shown
    assert _PART not in shown
    there, here = statements[0]["id"], statements[1]["id"]
    assert "Number 2 of series 1" in words(
        await served.finance.get(f"/merchant/statements/{there}")
    )
    stranger = await served.two.world.other_merchant()
    headers = served.api.bearer(stranger.api_key)
    assert (await served.api.send("GET", f"/v1/statements/{there}", headers=headers)).status == 404

    await served.two.away(1)
    left, is_whole = await served.list("statements")
    assert ([one["id"] for one in left], is_whole) == ([here], False)
    assert (await served.read("balance")).status == 503  # a part of it would be a lie
    assert (await served.read(f"statements/{there}")).status == 503
    assert (await served.read(f"statements/{here}")).status == 200
    shown = words(await served.finance.get("/merchant/statements"))
    assert _PART in shown
    assert "cannot be said now" in shown
    assert "30.00 THB" not in shown
    for file in ("", "/lines.csv", "/statement.pdf"):
        assert (await served.finance.get(f"/merchant/statements/{there}{file}")).status == 503
    await served.two.back(1)
    assert (await served.list("balance"))[0] == [{"currency": "THB", "amount": "1230.00"}]


async def test_what_a_merchant_is_owed_does_not_need_a_cell_in_which_it_never_was(
    served: Served,
) -> None:
    await served.enter(1, 1_000_00, 2)
    payment_id = await served.dispute()
    whole, _ = await served.list("balance")
    await served.two.away(0)
    assert await served.list("balance") == (whole, True)
    for path in ("disputes", "cases"):
        listed, is_whole = await served.list(path)
        assert ([each["payment_id"] for each in listed], is_whole) == ([payment_id], True)
    statements, is_whole = await served.list("statements")
    assert ([each["closing"] for each in statements], is_whole) == (["1000.00"], True)
    await served.two.back(0)
    await served.add_own_account()  # whose payouts are in cell 0
    await served.two.away(0)
    assert (await served.read("balance")).status == 503


async def test_disputes_cases_and_calls_of_a_moved_merchant_are_of_both_cells(
    served: Served,
) -> None:
    old = await served.dispute()
    await served.move(0)
    new = await served.dispute()
    for path in ("disputes", "cases"):
        listed, is_whole = await served.list(path)
        assert ([one["payment_id"] for one in listed], is_whole) == ([new, old], True)
    assert len(await _pages(served, "disputes", "case_id")) == 2
    for cell, ago in ((1, 2), (0, 1), (1, 0)):
        database = served.two.world.service.cells.at(cell)
        await database.fetch(_CALLED, served.two.world.merchant_id, ago, f"/v1/in-{cell}/{ago}")
    page = words(await served.developer.get("/merchant/calls"))
    assert page.index("/v1/in-1/0") < page.index("/v1/in-0/1") < page.index("/v1/in-1/2")

    await served.two.away(1)
    for path in ("disputes", "cases"):
        listed, is_whole = await served.list(path)
        assert ([one["payment_id"] for one in listed], is_whole) == ([new], False)
    page = words(await served.developer.get("/merchant/calls"))
    assert _PART in page
    assert "/v1/in-0/1" in page
    await served.two.back(1)


async def test_a_chain_is_shown_while_control_is_away_and_operators_see_its_worst_cell(
    served: Served,
) -> None:
    world, cells = served.two.world, served.two.world.service.cells
    for cell, block in ((0, 90), (1, 100)):
        query = "INSERT INTO chain_cursor (chain, block) VALUES ('bsc', $1)"
        await cells.at(cell).fetch(query, block)
    whole = (await served.api.send("GET", "/v1/chains/bsc")).json
    await served.two.away(0)
    assert (await served.api.send("GET", "/v1/chains/bsc")).json == whole
    await served.two.back(0)

    assert await _bsc(world) == (90, None, ())
    await chains.halt(cells.at(1), "bsc", "another chain")
    assert await _bsc(world) == (100, "cell 1: another chain", ())
    await served.two.away(1)
    assert await _bsc(world) == (90, None, (1,))
    await served.two.back(1)


async def _bsc(world: World) -> tuple[int, str | None, tuple[int, ...]]:
    listed = await world.perform(ListChains())
    [chain] = [chain for chain in listed if chain.slug == "bsc"]
    return chain.block, chain.halted, cells_away(listed)


async def _pages(served: Served, path: str, name: str = "id") -> list[str]:
    """Read a list one by one."""
    found: list[str] = []
    cursor = ""
    while True:
        answer = (await served.read(f"{path}?limit=1{cursor}")).json
        found += [one[name] for one in answer["data"]]
        if "next_cursor" not in answer:
            return found
        cursor = f"&cursor={answer['next_cursor']}"
