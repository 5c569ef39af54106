"""After any order of events, the ledger matches the facts, the statements and the gateway."""

import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import pytest

from payintent.accounting import ledger_check_store
from payintent.accounting import payouts_store as payout_store
from payintent.accounting import statements_store as statement_store
from payintent.accounting.close_statements import close_due_days
from payintent.accounting.ledger_operations import BackfillLedger, ShowLedger
from payintent.accounting.payouts_operations import (
    RecordGatewayPayout,
    RecordPayout,
    ReverseGatewayPayout,
    ReversePayout,
)
from payintent.callbacks.receive import apply_deferred_callbacks
from payintent.cases.operations import ListCases
from payintent.core.errors import NotFoundError, RefusedError
from payintent.gateways.port import DisputeState, GatewayRefundState, OutsideRefund, RefundReport
from payintent.payments.model import Payment
from payintent.refunds.resolve_case import ResolveCase
from tests.accounting.test_ledger_operations import delete_entries, get_nonzero_balances
from tests.callbacks.test_receive import add_session, selected, tell
from tests.disputes.test_record import hear as hear_dispute
from tests.disputes.test_record import report as dispute
from tests.refunds.refund_gateway import RefundGateway
from tests.refunds.refund_setup import (
    DECLINED,
    DONE,
    PENDING,
    process_due_refunds,
    request_refund,
    send_refund_callback,
)
from tests.refunds.test_outside_refunds import make_report, send_callback
from tests.support.fakes import FakeGateway, captured, declined
from tests.support.world import World

_STEPS = 80
_CAPTURES_MAX = 6
_REPORTS = [replace(report, reference=None) for report in (DONE, DONE, PENDING, DECLINED)]
_AMOUNTS = [1, 100, 59000, 79500, 100000, 159000]
#: What should be at the gateway: the captures, without returned, dismissed and paid out money.
_EXPECTED_CLEARING = """
    WITH captured AS (
        SELECT c.amount_minor, EXISTS (SELECT FROM money_case m
                WHERE m.capture_id = c.id AND m.status = 'DISMISSED' AND m.closed_by = 'test'
                    AND m.kind NOT IN ('DISPUTE', 'OUTSIDE_REFUND', 'RECONCILIATION',
                        'REFUND_REVERSED')) AND NOT c.credited AS is_dismissed,
            (SELECT coalesce(sum(amount_minor), 0) FROM refund
                WHERE capture_id = c.id AND status = 'SUCCEEDED') AS refunded,
            (SELECT coalesce(sum(amount_minor), 0) FROM refund
                WHERE capture_id = c.id AND status = 'PENDING') AS reserved,
            (SELECT coalesce(sum(amount_minor), 0) FROM dispute
                WHERE capture_id = c.id AND state = 'lost') AS lost,
            (SELECT coalesce(sum(amount_minor), 0) FROM dispute
                WHERE capture_id = c.id AND state IN ('open', 'under_review')) AS held
        FROM capture c
    )
    SELECT coalesce(sum(CASE WHEN is_dismissed THEN reserved + held
            ELSE amount_minor - refunded - lost END), 0)
        - (SELECT coalesce(sum(amount_minor + fee_minor), 0)
            FROM gateway_payout WHERE reversed_at IS NULL) AS amount
    FROM captured
"""


@pytest.fixture
def gateway() -> FakeGateway:
    return RefundGateway()


@dataclass
class Events:
    """Random events of a few captures. Events that are impossible now are refused."""

    world: World
    chance: random.Random
    references: list[str] = field(default_factory=list)
    payments: list[Payment] = field(default_factory=list)
    unknown_sessions: list[UUID] = field(default_factory=list)
    outside_refunds: list[OutsideRefund] = field(default_factory=list)
    elapsed_s: int = 0

    async def add(self) -> None:
        """Add a random event, or nothing if it is refused."""
        events = [
            *(self.pay, self.pay, self.pay_again, self.pay_unknown, self.find_session),
            *(self.refund, self.refund, self.send_refunds, self.end_refund, self.end_refund),
            *(self.refund_outside, self.refund_outside, self.end_outside_refund),
            *(self.dispute, self.dispute, self.resolve_case, self.resolve_case, self.pay_out),
            *(self.reverse_payout, self.pay_out_gateway, self.reverse_gateway_payout),
            self.close_days,
        ]
        with suppress(RefusedError):
            await self.chance.choice(events)()

    def choose(self, items: Sequence[Any]) -> Any:
        if not items:
            raise NotFoundError("nothing to choose from")
        return self.chance.choice(items)

    def capture(self, *amounts: int) -> Any:
        if len(self.references) == _CAPTURES_MAX:
            raise NotFoundError("enough captures")
        self.references.append(f"cap-{len(self.references)}")
        return captured(self.chance.choice(amounts), reference=self.references[-1])

    async def pay(self) -> None:
        report = self.capture(159000, 159000, 159000, 159001, 100)
        payment, session_id = await selected(self.world)
        self.payments.append(payment)
        if self.chance.random() < 0.4:
            await self.world.report(payment, session_id, declined())
        await self.world.report(payment, session_id, report)

    async def pay_again(self) -> None:
        payment = self.choose(self.payments)
        [row] = await self.world.rows(
            "SELECT id FROM session WHERE payment_id = $1 ORDER BY id LIMIT 1", payment.id
        )
        await self.world.report(payment, row["id"], self.capture(159000))

    async def pay_unknown(self) -> None:
        self.unknown_sessions.append(self.world.id_generator.new_session_id())
        await tell(self.world, self.unknown_sessions[-1], self.capture(159000))

    async def find_session(self) -> None:
        session_id = self.choose(self.unknown_sessions)
        self.unknown_sessions.remove(session_id)
        self.payments.append(await add_session(self.world, session_id))
        await apply_deferred_callbacks(self.world.database, 10)

    async def refund(self) -> None:
        amount = self.chance.choice([None, "0.01", "590.00", "795.00"])
        await request_refund(self.world, self.choose(self.payments), amount)

    async def send_refunds(self) -> None:
        report: RefundReport = self.chance.choice(_REPORTS)
        self.world.gateway.answer_refund = self.world.gateway.answer_inquire_refund = report
        await process_due_refunds(self.world)

    async def end_refund(self) -> None:
        refunds = await self.world.rows("SELECT id FROM refund ORDER BY id")
        report: RefundReport = self.chance.choice(_REPORTS)
        await send_refund_callback(self.world, self.choose(refunds)["id"], report)

    async def refund_outside(self) -> None:
        report = make_report(
            self.choose(self.payments),
            self.chance.choice(_AMOUNTS),
            capture=self.choose(self.references),
            reference=f"re-{len(self.outside_refunds)}",
            state=self.chance.choice(_REPORTS).state,
        )
        self.outside_refunds.append(report)
        await send_callback(self.world, report)

    async def end_outside_refund(self) -> None:
        state: GatewayRefundState = self.chance.choice(_REPORTS).state
        await send_callback(self.world, replace(self.choose(self.outside_refunds), state=state))

    async def dispute(self) -> None:
        report = dispute(
            self.choose(self.payments),
            capture=self.choose(self.references),
            reference=f"du-{self.chance.randrange(6)}",
            amount_minor=self.chance.choice(_AMOUNTS),
            state=self.chance.choice(list(DisputeState)),
            is_appeal=self.chance.random() < 0.2,
        )
        await hear_dispute(self.world, report)

    async def resolve_case(self) -> None:
        cases = await self.world.perform(ListCases(status="OPEN", limit=100))
        resolution: Any = self.chance.choice(["accept", "dismiss", "refund"])
        case_id = self.choose(cases).id
        await self.world.perform(ResolveCase(case_id=case_id, resolution=resolution, note="-"))

    async def pay_out(self) -> None:
        payout = RecordPayout(
            merchant_id=self.world.merchant_id,
            amount=f"{self.chance.choice(_AMOUNTS) / 100:.2f}",
            currency="THB",
            reference=f"po-{self.chance.randrange(5)}",
        )
        await self.world.perform(payout)

    async def reverse_payout(self) -> None:
        payouts = await self.world.rows("SELECT id FROM payout ORDER BY id")
        await self.world.perform(ReversePayout(payout_id=self.choose(payouts)["id"], note="-"))

    async def pay_out_gateway(self) -> None:
        sign = self.chance.choice(["", "", "-"])
        payout = RecordGatewayPayout(
            account_id=self.world.account_id,
            amount=f"{sign}{self.chance.choice(_AMOUNTS) / 100:.2f}",
            currency="THB",
            reference=f"gp-{self.chance.randrange(5)}",
            fee=self.chance.choice([None, "0.30", "46.11"]),
        )
        await self.world.perform(payout)

    async def reverse_gateway_payout(self) -> None:
        payouts = await self.world.rows("SELECT id FROM gateway_payout ORDER BY id")
        payout_id = self.choose(payouts)["id"]
        await self.world.perform(ReverseGatewayPayout(payout_id=payout_id, note="-"))

    async def close_days(self) -> None:
        self.elapsed_s += self.chance.choice([3600, 24 * 3600])
        await self.world.move_clock(self.elapsed_s)
        while await close_due_days(self.world.database):
            pass


async def read_balances(world: World) -> dict[str, str]:
    return get_nonzero_balances(await world.perform(ShowLedger()))


async def check_books(world: World) -> None:
    assert await ledger_check_store.find_differences(world.database) == []
    assert await ledger_check_store.count_missing_entries(world.database) == 0
    balances = await statement_store.list_balances(world.database, world.merchant_id)
    payable = await payout_store.get_payable(world.database, world.merchant_id, "THB", None)
    assert sum(balance.amount_minor for balance in balances) == payable
    clearing = (await read_balances(world)).get(f"gateway_clearing:{world.account_id}", "0")
    assert int(clearing) == await world.database.value(_EXPECTED_CLEARING)


@pytest.mark.parametrize("seed", range(6))
async def test_the_books_agree_after_any_order_of_events(world: World, seed: int) -> None:
    if seed % 2:
        await world.rows("UPDATE provider_account SET merchant_id = $1", world.merchant_id)
    events = Events(world, random.Random(seed))
    for _ in range(_STEPS):
        await events.add()
        await check_books(world)
    balances = await read_balances(world)
    await delete_entries(world, "fact NOT IN ('payout', 'gateway_payout')")
    await world.perform(BackfillLedger())
    assert await read_balances(world) == balances
