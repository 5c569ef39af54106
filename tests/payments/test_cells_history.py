"""Histories of a merchant that is moved among three cells: Hypothesis drives, and the sums hold.

`HYPOTHESIS_PROFILE=long` makes many more and longer ones.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from payintent.api.feed_over_cells import read_feed
from payintent.api.pagination import read_feed_cursor, write_feed_cursor
from payintent.config import Settings
from payintent.domain.errors import ErrorCode, RefusedError, StorageUnavailableError
from payintent.domain.event import EventType
from payintent.domain.ledger import quoted_charges
from payintent.domain.payment import CreatePaymentRequest, Payment
from payintent.domain.refund import Refund
from payintent.operations import copy_tables as copying
from payintent.operations.ledger import CheckLedger, ShowLedger
from payintent.operations.merchant_moves import MoveMerchant
from payintent.operations.payouts import ListPayouts, RecordPayout, ReversePayout
from payintent.payments import carry_balances
from payintent.payments.carry_balances import carry_due, finish_transfers
from payintent.payments.list_over_cells import list_over_cells
from payintent.payments.statements_over_cells import list_balances
from payintent.service import Service, open_service
from payintent.storage import statements
from payintent.storage.payment_list import PaymentFilter
from tests.payments.refunding import DECLINED, DONE, PENDING, asked, hear
from tests.support.cell_schema import OF_CELLS
from tests.support.cells import add_cell, copy_tables, with_cells
from tests.support.databases import WORLD_TEMPLATE, Databases
from tests.support.fakes import FakeGateway, captured
from tests.support.two_cells import wait_for_nobody
from tests.support.world import World, make_world

pytestmark = OF_CELLS
_SAID = {"deadline": None, "suppress_health_check": list(HealthCheck), "print_blob": True}
settings.register_profile("cells", max_examples=14, stateful_step_count=14, **_SAID)
settings.register_profile("cells_long", max_examples=500, stateful_step_count=40, **_SAID)
_LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
PROFILE = settings.get_profile("cells_long" if _LONG else "cells")
_HOUR_S, _KEYS_S = 3_600, 24 * 3_600
_END = {"done": DONE, "declined": DECLINED, "pending": PENDING}

Act = Coroutine[Any, Any, Any]
numbers = st.integers(0, 11)
cells = st.sampled_from((0, 1, 2))


class Crash(BaseException):
    """Our process dies between the two halves of a transfer."""


@dataclass
class Key:
    """A key of a create, and what it made last."""

    request: CreatePaymentRequest
    payment_id: UUID
    made_s: int  # by the clock of the history


@dataclass
class Stage:
    """Two processes of an installation of three cells; the slow one keeps its map for an hour."""

    world: World
    slow: Service

    def process(self, slow: bool) -> Service:
        return self.slow if slow else self.world.service


class CellHistory(RuleBasedStateMachine):
    """One merchant's life in three cells, as two processes see it."""

    stage: Stage
    run: Callable[[Act], Any]
    world: World  # of a merchant of its own

    def __init__(self) -> None:
        super().__init__()
        self.keys: list[Key] = []
        self.payments: dict[UUID, Payment] = {}
        self.unpaid: list[Payment] = []
        self.paid: list[Payment] = []
        self.refunds: list[Refund] = []  # that have not ended
        self.payouts: dict[str, Any] = {}  # that stand, by reference
        self.owed = 0
        self.clock_s = 0
        self.read: list[UUID] = []  # of the feed
        self.cursor: str | None = None
        self.run(self._begin())

    async def _begin(self) -> None:
        world = self.stage.world
        await world.move_clock(0)
        made = await world.other_merchant()
        [row] = await world.service.cells.control.fetch(
            "SELECT id FROM payment_method WHERE merchant_id = $1 ORDER BY position LIMIT 1",
            made.merchant.id,
        )
        self.world = replace(world, merchant_id=made.merchant.id, card=row["id"])
        self.cursor = (await self._read_page(True, None))[1]  # which the slow process keeps

    # What happens, each as a coroutine.

    async def _create(self, slow: bool, key: Key | None = None) -> None:
        request = self.world.request() if key is None else key.request
        created = await self.stage.process(slow).payment_creator.create(request)
        counts = key is not None and self.clock_s - key.made_s < _KEYS_S
        assert created.replayed is counts
        if key is not None and counts:
            assert created.payment == self.payments[key.payment_id], "a key made two payments"
            return
        assert created.payment.id not in self.payments
        self.payments[created.payment.id] = created.payment
        self.unpaid.append(created.payment)
        if key is None:
            self.keys.append(Key(request, created.payment.id, self.clock_s))
        else:
            key.payment_id, key.made_s = created.payment.id, self.clock_s

    async def _create_together(self, to: int) -> None:
        """Two processes create with one key while the merchant is moved."""
        request = self.world.request()
        both = [self.stage.process(slow).payment_creator.create(request) for slow in (False, True)]
        first, second, _ = await asyncio.gather(*both, self._move(to))
        assert first.payment == second.payment
        assert sorted((first.replayed, second.replayed)) == [False, True]
        self.payments[first.payment.id] = first.payment
        self.unpaid.append(first.payment)
        self.keys.append(Key(request, first.payment.id, self.clock_s))

    async def _move(self, to: int) -> None:
        await self.world.perform(MoveMerchant(merchant_id=self.world.merchant_id, to=to))

    async def _pay(self, payment: Payment) -> None:
        session = (await self.world.select(payment)).session
        quote = session.quote
        report = captured(quote.total_minor, reference=f"cap-{payment.id}")
        await self.world.report(payment, session.id, report)
        charges = quoted_charges(quote.price, quote.total_minor)
        self.owed += quote.total_minor - charges.fee_minor - charges.tax_minor

    async def _pay_out(self, amount_minor: int, reference: str) -> None:
        payout = RecordPayout(
            merchant_id=self.world.merchant_id,
            amount=f"{amount_minor / 100:.2f}",
            currency="THB",
            reference=reference,
        )
        refused = None
        if reference in self.payouts:
            refused = ErrorCode.CONFLICT
        elif amount_minor > self.owed:
            refused = ErrorCode.UNPROCESSABLE
        try:
            self.payouts[reference] = await self.world.perform(payout)
        except RefusedError as error:
            if error.code is not refused:
                raise
            return
        assert refused is None, "it was paid out already, or more than is owed"
        self.owed -= amount_minor

    async def _read_page(self, slow: bool, cursor: str | None) -> tuple[list[UUID], str]:
        service, merchant_id = self.stage.process(slow), self.world.merchant_id
        after = None if cursor is None else read_feed_cursor(cursor)
        part = await read_feed(service.cells, merchant_id, after, tuple(EventType), 2)
        return [event.id for event in part.events], write_feed_cursor(part.places)

    # The rules.

    @rule(slow=st.booleans())
    def create(self, slow: bool) -> None:
        self.run(self._create(slow))

    @rule(slow=st.booleans())
    def create_and_pay(self, slow: bool) -> None:
        self.run(self._create(slow))
        self.pay(0)

    @precondition(lambda self: self.keys)
    @rule(number=numbers, slow=st.booleans())
    def repeat(self, number: int, slow: bool) -> None:
        self.run(self._create(slow, self.keys[number % len(self.keys)]))

    @rule(to=cells)
    def create_with_one_key_while_it_is_moved(self, to: int) -> None:
        self.run(self._create_together(to))

    @rule(to=cells)
    def move(self, to: int) -> None:
        self.run(self._move(to))

    @rule(to=cells)
    def move_and_die_between_the_halves(self, to: int) -> None:
        async def dying() -> None:
            begin = carry_balances._begin

            async def begun(*args: Any) -> Any:
                if made := await begin(*args):
                    raise Crash
                return made

            with pytest.MonkeyPatch.context() as patch, suppress(Crash):
                patch.setattr(carry_balances, "_begin", begun)
                await self._move(to)

        self.run(dying())

    @rule(path=st.lists(cells, min_size=2, max_size=3), number=numbers)
    def travel_and_be_paid_out(self, path: list[int], number: int) -> None:
        for to in path:
            self.create_and_pay(slow=False)
            self.move(to)
        self.refund(number, "100")
        self.it_holds()
        self.pay_out(1, "more")
        self.pay_out(2, "all")

    @precondition(lambda self: self.unpaid)
    @rule(number=numbers)
    def pay(self, number: int) -> None:
        payment = self.unpaid.pop(-1 - number % len(self.unpaid))
        self.run(self._pay(payment))
        self.paid.append(payment)

    @precondition(lambda self: self.paid)
    @rule(number=numbers, amount=st.sampled_from(("1", "100", "700.01", "1590")))
    def refund(self, number: int, amount: str) -> None:
        payment = self.paid[number % len(self.paid)]
        with suppress(RefusedError):  # more than is left
            refund = self.run(asked(self.world, payment, amount))
            self.refunds.append(refund)
            self.owed -= refund.amount_minor

    @precondition(lambda self: self.refunds)
    @rule(number=numbers, end=st.sampled_from(sorted(_END)))
    def end_refund(self, number: int, end: str) -> None:
        refund = self.refunds[number % len(self.refunds)]
        self.run(hear(self.world, refund.id, _END[end]))
        if end != "pending":
            self.refunds.remove(refund)
        if end == "declined":
            self.owed += refund.amount_minor

    @rule(number=st.integers(1, 3), part=st.sampled_from(("all", "some", "more")))
    def pay_out(self, number: int, part: str) -> None:
        amount = {"all": max(self.owed, 1), "some": 5_000, "more": max(self.owed, 0) + 1}[part]
        self.run(self._pay_out(amount, f"bank {number}"))

    @precondition(lambda self: self.payouts)
    @rule(number=numbers)
    def reverse_payout(self, number: int) -> None:
        reference = sorted(self.payouts)[number % len(self.payouts)]
        payout = self.payouts.pop(reference)
        self.run(self.world.perform(ReversePayout(payout_id=payout.id, note="it came back")))
        self.owed += int(payout.amount_minor)

    @rule(hours=st.sampled_from((1, 12, 23, 25)))
    def wait(self, hours: int) -> None:
        self.clock_s += hours * _HOUR_S
        self.unpaid.clear()  # they expire
        self.run(self.world.move_clock(self.clock_s))

    @rule(cell=cells, copies=st.booleans())
    def work(self, cell: int, copies: bool) -> None:
        self.run(self._work(cell, copies))

    async def _work(self, cell: int, copies: bool) -> None:
        service = self.world.service
        if copies:
            await copy_tables(service.cells)
        await finish_transfers(service.cells, cell)
        with suppress(StorageUnavailableError):  # it does not know where the merchant is
            await carry_due(service.cells, cell)

    @rule(first_slow=st.booleans())
    def read_feed(self, first_slow: bool) -> None:
        for slow in (first_slow, not first_slow, first_slow):
            found, self.cursor = self.run(self._read_page(slow, self.cursor))
            self.read += found

    # What must hold after every step.

    @invariant()
    def it_holds(self) -> None:
        self.run(self._check())

    async def _check(self) -> None:
        service, merchant_id = self.world.service, self.world.merchant_id
        balances = await list_balances(service.cells, merchant_id)
        assert sum(balance.amount_minor for balance in balances) == self.owed
        found = list[UUID]()
        before = None
        while True:
            wanted = PaymentFilter(merchant_id=merchant_id, before=before, limit=3)
            page = await list_over_cells(service.cells, service.readings, wanted)
            found += [snapshot.payment.id for snapshot in page.payments]
            before = page.following
            if before is None:
                break
        assert sorted(found) == sorted(self.payments)
        assert len(set(self.read)) == len(self.read), "the feed told something twice"

    def teardown(self) -> None:
        """Let all that is on its way arrive: then nothing is missing, or there twice."""
        self.run(self._come_to_an_end())
        self.it_holds()

    async def _come_to_an_end(self) -> None:
        service, merchant_id = self.world.service, self.world.merchant_id
        await self.world.move_clock(self.clock_s + 26 * _HOUR_S)
        await copy_tables(service.cells)
        for step in (finish_transfers, carry_due):
            for cell in (0, 1, 2):
                await step(service.cells, cell)
        place = await service.cells.place_of_merchant(merchant_id)
        for cell, database in service.cells.items():
            there = await statements.list_balances(database, merchant_id)
            owed = sum(balance.amount_minor for balance in there)
            assert owed == (self.owed if cell == place.cell else 0)
        assert await self.world.perform(CheckLedger()) == []
        ledger = await self.world.perform(ShowLedger())
        of_cells = [row for row in ledger if row.account == "cell_clearing"]
        assert sum(int(row.balance_minor) for row in of_cells) == 0
        for payment in self.payments.values():
            for process in (False, True):
                lookup = self.stage.process(process).payment_lookup
                found = await lookup.get_merchant_payment(merchant_id, payment.id)
                assert found.payment.id == payment.id
        listed = await self.world.perform(ListPayouts(merchant_id=merchant_id, limit=100))
        standing = [each.reference for each in listed if each.reversed_at is None]
        assert sorted(standing) == sorted(self.payouts)
        await self._read_to_the_end()

    async def _read_to_the_end(self) -> None:
        while True:
            found, self.cursor = await self._read_page(False, self.cursor)
            self.read += found
            if not found:
                break
        events = list[UUID]()
        for database in self.world.service.cells:
            rows = await database.fetch(
                "SELECT id FROM event WHERE merchant_id = $1", self.world.merchant_id
            )
            events += [row["id"] for row in rows]
        assert sorted(self.read) == sorted(events), "the feed lost something"


@pytest.fixture
def stage(settings: Settings, databases: Databases) -> Iterator[type[CellHistory]]:
    """An installation of three cells in a loop of its own, for all histories."""
    urls = {number: databases.take(WORLD_TEMPLATE) for number in (1, 2)}
    kept = dict[str, Any]()

    async def open_stage() -> Stage:
        gateway = FakeGateway()
        first = await open_service(settings, {"fake": gateway})
        world = await make_world(first, gateway)
        await first.close()
        for number, url in urls.items():
            await add_cell(settings.database_url, url, number)
        limitless = settings.model_copy(update={"buyer_calls_per_s": 0})  # clocks are set back
        fresh = with_cells(limitless, urls)
        service = await open_service(fresh, {"fake": gateway})
        slow = fresh.model_copy(update={"api_key_cache_s": 3600.0})
        await copy_tables(service.cells)
        return Stage(replace(world, service=service), await open_service(slow, {"fake": gateway}))

    with asyncio.Runner() as runner, pytest.MonkeyPatch.context() as patch:
        patch.setattr(copying, "wait_until_copied", wait_for_nobody)
        kept["stage"] = runner.run(open_stage())
        kept["run"] = staticmethod(runner.run)
        yield type("Staged", (CellHistory,), kept)
        runner.run(kept["stage"].slow.close())
        runner.run(kept["stage"].world.service.close())
    for url in urls.values():
        databases.give_back(url)


@pytest.mark.timeout(0)
def test_every_history_over_three_cells_keeps_its_sums(stage: type[CellHistory]) -> None:
    run_state_machine_as_test(stage, settings=PROFILE)
