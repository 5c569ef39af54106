"""The books of a merchant that was moved: what it is owed is carried after it, once and whole."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import asyncpg
import pytest

from payintent.domain.errors import ErrorCode, RefusedError, StorageUnavailableError
from payintent.domain.payment import Payment
from payintent.operations.accounts import AddAccount
from payintent.operations.gateway_payouts import RecordGatewayPayout
from payintent.operations.ledger import CheckLedger, ShowLedger
from payintent.operations.merchant_moves import MoveMerchant
from payintent.operations.payouts import RecordPayout, ReversePayout
from payintent.payments import carry_balances
from payintent.payments.carry_balances import carry_due, carry_from, finish_transfers
from payintent.payments.close_statements import close_due_days
from payintent.payments.statements_over_cells import list_balances
from payintent.storage import cell_records, statements
from payintent.storage.cells import Cells
from payintent.storage.statements import StatementFilter
from payintent.worker_steps import CellSteps
from tests.payments.refunding import asked
from tests.support.cell_schema import OF_CELLS
from tests.support.databases import Databases
from tests.support.patience import until
from tests.support.two_cells import TwoCells, two_cells
from tests.support.world import ACTOR, World

pytestmark = OF_CELLS
_DAY_S = 86_400


@dataclass(frozen=True)
class Moved:
    """A merchant that was paid once in cell 0, and is moved to cell 1."""

    two: TwoCells
    merchant_id: int
    payment: Payment
    due: int = 0  # what cell 0 owes it at first: 1590.00 THB less the fee

    @property
    def world(self) -> World:
        return self.two.world

    @property
    def cells(self) -> Cells:
        return self.two.world.service.cells

    async def move(self, to: int = 1) -> None:
        await self.two.move(to, self.merchant_id)

    async def owed(self) -> tuple[int, ...]:
        """Return what each cell owes the merchant."""
        found = list[int]()
        for cell in self.cells:
            balances = await statements.list_balances(cell, self.merchant_id)
            found.append(sum(balance.amount_minor for balance in balances))
        return tuple(found)

    async def balance(self) -> int:
        """Return what the merchant is owed, as its server reads it."""
        return sum(
            balance.amount_minor for balance in await list_balances(self.cells, self.merchant_id)
        )

    async def transfers(self, cell: int) -> list[Any]:
        return await self.column(cell, "SELECT amount_minor::int FROM cell_transfer ORDER BY id")

    async def column(self, cell: int, query: str) -> list[Any]:
        rows = await self.cells.at(cell).fetch(query)  # type: ignore[arg-type]
        return [row[0] for row in rows]

    async def pay_out(self, amount: str, reference: str = "bank 1") -> Any:
        return await self.world.perform(
            RecordPayout(
                merchant_id=self.merchant_id, amount=amount, currency="THB", reference=reference
            )
        )

    async def refund(self, amount: str) -> None:
        await asked(self.world, self.payment, amount)

    async def differing(self) -> list[tuple[str, int, str]]:
        found = await self.world.perform(CheckLedger())
        return [(item.account, item.cell, item.facts_minor) for item in found]

    async def clearing(self) -> int:
        """Return the balance of all that cells owe each other."""
        found = await self.world.perform(ShowLedger())
        return sum(int(line.balance_minor) for line in found if line.account == "cell_clearing")


@pytest.fixture
async def moved(world: World, databases: Databases) -> AsyncIterator[Moved]:
    opened = two_cells(world, databases, api_key_cache_s=0.0)
    async with opened as two:
        merchant_id = (await two.world.other_merchant()).merchant.id
        payment = await two.pay(merchant_id)
        made = Moved(two, merchant_id, payment)
        due, none = await made.owed()
        assert (due > 150_000, none) == (True, 0)
        yield replace(made, due=due)


async def test_what_a_merchant_is_owed_is_carried_after_it_and_paid_out_in_its_present_cell(
    moved: Moved,
) -> None:
    assert await moved.owed() == (moved.due, 0)
    await moved.move()
    assert (await moved.owed(), await moved.clearing()) == ((0, moved.due), 0)
    assert await moved.transfers(0) == await moved.transfers(1) == [moved.due]
    assert (await moved.column(0, "SELECT arrived_at FROM cell_transfer"))[0] is not None
    assert await moved.differing() == []
    paid = await moved.pay_out("1000.00")
    # A refund of before is the former cell's, and its debt is known to the next payout.
    await moved.refund("200.00")
    assert await moved.owed() == (-20_000, moved.due - 100_000)
    left = f"{(moved.due - 120_000) / 100:.2f}"
    with pytest.raises(RefusedError, match=f"is owed {left} THB, not 500.00"):
        await moved.pay_out("500.00", "bank 2")
    assert await moved.owed() == (0, moved.due - 120_000)
    await moved.pay_out(left, "bank 3")
    # And what is refunded after all was paid out makes it owe, as ever.
    await moved.refund("100.00")
    assert await carry_due(moved.cells, 0) is False
    assert await moved.owed() == (-10_000, 0), "each merchant's is carried once a day"
    await moved.world.move_clock(_DAY_S + 60)
    await carry_due(moved.cells, 0)
    assert await moved.owed() == (0, -10_000)
    await moved.move(0)
    assert (await moved.owed(), await moved.clearing()) == ((-10_000, 0), 0)
    await moved.world.perform(ReversePayout(payout_id=paid.id, note="it came back"))
    assert await moved.owed() == (-10_000, 100_000)
    await moved.world.move_clock(2 * _DAY_S + 120)
    await carry_due(moved.cells, 1)
    assert (await moved.owed(), await moved.clearing()) == ((90_000, 0), 0)
    assert await moved.differing() == []
    assert "balances" not in await cell_records.list_unended(moved.cells.at(1))


async def test_the_former_cells_statements_end_with_the_transfer(moved: Moved) -> None:
    await moved.move()
    await moved.world.move_clock(2 * _DAY_S)
    found = list[Any]()
    for database in moved.cells:
        await close_due_days(database)
        [statement] = await statements.list_statements(
            database, StatementFilter(merchant_id=moved.merchant_id), 10
        )
        [*_, line] = await statements.list_lines(database, statement, 0, 10)
        adjusted = statement.movements["adjustments"]  # type: ignore[index]
        found.append((adjusted, statement.closing_minor, line.fact, line.net_minor))
    assert found == [
        (-moved.due, 0, "cell_transfer", -moved.due),
        (moved.due, moved.due, "cell_transfer", moved.due),
    ]


async def test_of_many_who_carry_at_once_one_does_and_payouts_meanwhile_are_never_too_much(
    moved: Moved, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def later(*_: object) -> str:
        return ""

    with monkeypatch.context() as patch:
        patch.setattr("payintent.operations.merchant_moves._carry", later)
        await moved.move()
    assert await moved.owed() == (moved.due, 0)
    held = await moved.two.direct(0)
    await held.execute(f"BEGIN; SELECT pg_advisory_xact_lock(7002, hashint8({moved.merchant_id}))")
    carriers = [
        asyncio.create_task(carry_from(moved.cells, moved.merchant_id, 0)) for _ in range(3)
    ]
    payouts = [asyncio.create_task(moved.pay_out("800.00", f"bank {n}")) for n in range(2)]

    async def all_wait() -> bool:
        waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        return await held.fetchval(waiting) >= len(carriers)

    await until(all_wait, "all carriers wait for each other")
    await held.execute("COMMIT")
    await held.close()
    await asyncio.gather(*carriers)
    done = await asyncio.gather(*payouts, return_exceptions=True)
    assert sum(isinstance(each, RefusedError) for each in done) == 1
    assert await moved.transfers(0) == await moved.transfers(1) == [moved.due]
    assert await moved.owed() == (0, moved.due - 80_000)
    assert await moved.differing() == []


def _before_arriving(patch: pytest.MonkeyPatch, happens: Callable[[], Awaitable[None]]) -> None:
    """Let something happen between the two halves."""
    begin = carry_balances._begin

    async def begun(*args: Any) -> Any:
        made = await begin(*args)
        await happens()
        return made

    patch.setattr(carry_balances, "_begin", begun)


async def test_a_process_that_dies_between_the_halves_loses_nothing_and_the_check_says_so(
    moved: Moved, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def killed() -> None:
        raise asyncio.CancelledError

    with monkeypatch.context() as patch:
        _before_arriving(patch, killed)
        with pytest.raises(asyncio.CancelledError):
            await moved.move()
    assert (await moved.owed(), await moved.balance()) == ((0, 0), moved.due)
    assert (await cell_records.list_unended(moved.cells.at(0)))["transfers"] == 1
    assert await moved.differing() == [], "it may be under way"
    await moved.world.move_clock(61)
    assert await moved.differing() == [("cell_clearing", 1, str(moved.due))]
    await asyncio.gather(*(finish_transfers(moved.cells, 0) for _ in range(3)))
    assert await moved.owed() == (0, moved.due)
    assert await moved.differing() == []
    assert "transfers" not in await cell_records.list_unended(moved.cells.at(0))
    assert await finish_transfers(moved.cells, 0) is False


async def test_a_cell_that_goes_away_between_the_halves_gets_its_own_when_it_is_back(
    moved: Moved, monkeypatch: pytest.MonkeyPatch
) -> None:
    warnings = list[str]()
    with monkeypatch.context() as patch:
        _before_arriving(patch, lambda: moved.two.away(1))
        operation = MoveMerchant(merchant_id=moved.merchant_id, to=1)
        await moved.world.service.submit(operation, ACTOR, None, warnings.append)
    assert any("carried to cell 1 later: cell 1 does not answer" in said for said in warnings)
    with pytest.raises(StorageUnavailableError, match="cell 1 does not answer"):
        await finish_transfers(moved.cells, 0)
    await moved.two.back(1)
    assert await moved.owed() == (0, 0)
    # The former cell is away now: a payout cannot know what is owed there.
    await moved.two.away(0)
    with pytest.raises((RefusedError, StorageUnavailableError)):
        await moved.pay_out("1.00")
    await moved.two.back(0)
    await finish_transfers(moved.cells, 0)
    assert await moved.owed() == (0, moved.due)
    assert await moved.differing() == []


@pytest.mark.parametrize("present", [0, 1])
async def test_a_balance_that_is_read_while_it_is_carried_is_whole(
    moved: Moved, monkeypatch: pytest.MonkeyPatch, present: int
) -> None:
    if present == 0:
        await moved.move()
        await moved.pay_out("100.00")
    owed = sum(await moved.owed())
    read = statements.list_balances
    reads = list[object]()

    async def then_moved(*args: Any) -> Any:
        found = await read(*args)
        reads.append(args[0])
        if len(reads) == 1:
            with monkeypatch.context() as patch:
                patch.setattr(statements, "list_balances", read)
                await moved.move(present)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(statements, "list_balances", then_moved)
        assert await moved.balance() == owed
    assert set(reads) == set(moved.cells), "also where it had come a moment ago"
    assert await moved.owed() == ((owed, 0), (0, owed))[present]
    assert await moved.balance() == owed


@pytest.mark.parametrize("lost_in", [0, 1])
async def test_a_half_that_a_cell_lost_with_its_last_commits_is_written_again_and_not_doubled(
    moved: Moved, lost_in: int
) -> None:
    await moved.move()
    await moved.two.run(
        lost_in,
        "DELETE FROM cell_transfer; DELETE FROM ledger_entry WHERE fact = 'cell_transfer'",
    )
    assert sum(await moved.owed()) == (0, 2 * moved.due)[lost_in == 0]
    assert await moved.balance() == moved.due
    await moved.world.move_clock(61)
    assert await moved.differing() == [
        ("cell_clearing", lost_in, str(moved.due if lost_in else -moved.due))
    ]
    if lost_in:
        await carry_due(moved.cells, 0)
    else:
        await moved.pay_out(
            f"{moved.due / 100:.2f}"
        )  # which carries once more, and would carry all of it
    assert await moved.transfers(0) == await moved.transfers(1) == [moved.due]
    assert await moved.owed() == (0, moved.due if lost_in else 0)
    assert await moved.differing() == []


async def test_what_a_gateway_paid_to_a_merchants_own_account_is_carried_from_cell_0(
    moved: Moved,
) -> None:
    in_1 = moved.world.merchant_id
    account = await moved.world.perform(
        AddAccount(
            provider="fake",
            base_url="http://other.test",
            merchant_id=in_1,
            credentials={"signing_secret": "x"},
        )
    )
    await moved.world.perform(
        RecordGatewayPayout(account_id=account.id, amount="40.00", currency="THB", reference="po_1")
    )
    there = replace(moved, merchant_id=in_1)
    assert await there.owed() == (-4_000, 0)
    steps = CellSteps(moved.world.service).of(0, moved.cells.at(0))
    for step in steps:
        if step.name in ("transfers", "books"):
            await step.step()
    assert (await there.owed(), await there.clearing()) == ((0, -4_000), 0)
    assert await there.differing() == []


_NEW = "INSERT INTO cell_transfer (id, merchant_id, currency, from_cell, to_cell"
_HALF = f"{_NEW}, amount_minor, arrived_at) VALUES (gen_random_uuid(), $1, 'THB'"
_REFUSED = {
    f"{_NEW}) VALUES (gen_random_uuid(), $1, 'THB', 1, 0)": "cell_transfer_whole",
    f"{_NEW}) VALUES (gen_random_uuid(), $1, 'THB', 0, 1)": "cell_transfer_whole",
    f"{_HALF}, 0, 2, 5, clock())": "cell_transfer_side",
    f"{_HALF}, 0, 1, 0, clock())": "cell_transfer_amount",
    f"{_HALF}, 1, 1, 5, clock())": "cell_transfer_cells",
    "UPDATE cell_transfer SET amount_minor = 5 WHERE merchant_id = $1": "cell_transfer_stands",
    "DELETE FROM cell_transfer WHERE merchant_id = $1": "cell_transfer_stands",
}


async def test_a_database_holds_what_may_be_carried_by_itself(moved: Moved) -> None:
    await moved.move()
    connection = await moved.two.direct(1)
    for statement, rule in _REFUSED.items():
        with pytest.raises(asyncpg.CheckViolationError) as refused:
            await connection.execute(statement.replace("$1", str(moved.merchant_id)))
        assert refused.value.constraint_name == rule
    await connection.close()


async def test_a_payout_in_a_cell_that_the_merchant_has_left_is_refused_by_code_and_database(
    moved: Moved, monkeypatch: pytest.MonkeyPatch
) -> None:
    await moved.move()

    async def as_before(*_: object) -> int:
        return 0

    monkeypatch.setattr(RecordPayout, "cell_of", as_before)
    with pytest.raises(RefusedError) as refused:
        await moved.pay_out("1.00")
    assert (refused.value.code, refused.value.message) == (
        ErrorCode.CONFLICT,
        f"merchant {moved.merchant_id} is being moved: do it again",
    )
    connection = await moved.two.direct(0)
    with pytest.raises(asyncpg.CheckViolationError, match="in the cell that its merchant is in"):
        await connection.execute(
            "INSERT INTO payout (id, merchant_id, currency, amount_minor, reference, paid_on,"
            f" recorded_by) VALUES (gen_random_uuid(), {moved.merchant_id}, 'THB', 1, 'x',"
            " '2026-11-27', 'test')"
        )
    await connection.close()
