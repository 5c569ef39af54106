"""Random histories by Hypothesis: the invariants hold after every step.

`HYPOTHESIS_PROFILE=long` generates more and longer histories.
"""

import asyncio
import itertools
import os
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from payintent.accounting import ledger_check_store
from payintent.callbacks.receive import apply_deferred_callbacks
from payintent.core.errors import ErrorCode, RefusedError
from payintent.gateway_accounts.health import FAILURES_MAX, GatewayChannel, GatewayHealth
from payintent.gateways.port import (
    DisputedFunds,
    DisputeReport,
    DisputeState,
    GatewayRefundRequest,
    GatewaySessionState,
    NotContacted,
    OutcomeUnknown,
    RefundReport,
    SessionCreated,
    SessionRejected,
    SessionReport,
    VerifiedCallback,
)
from payintent.payments import sessions_store as sessions
from payintent.payments.cancel import cancel_by_buyer, cancel_by_merchant
from payintent.payments.model import Payment
from payintent.runtime.settings import Settings
from payintent.service import open_service
from tests.payments.test_expire import sweep
from tests.payments.test_model import EXPECTED
from tests.refunds.refunding import ABSENT, DECLINED, DONE, PENDING, asked, due, hear
from tests.support.fakes import FakeGateway, accept, captured, declined
from tests.support.world import World, make_world

pytestmark = pytest.mark.full

_SAID = {"deadline": None, "suppress_health_check": list(HealthCheck), "print_blob": True}
settings.register_profile("history", max_examples=40, stateful_step_count=30, **_SAID)
settings.register_profile("long", max_examples=1000, stateful_step_count=60, **_SAID)
PROFILE = settings.get_profile(os.environ.get("HYPOTHESIS_PROFILE", "history"))

ARROWS = {(before, after) for (before, _), (after, _) in EXPECTED.items()}
ENDING = {"PAID": "completed", "FAILED": "failed", "EXPIRED": "expired", "CANCELLED": "cancelled"}
ENDING |= {"PARTIALLY_REFUNDED": "completed", "REFUNDED": "completed"}
WAS_PAID = {"PAID", "PARTIALLY_REFUNDED", "REFUNDED"}
#: What a refund does to a payment that was paid; nothing else about it ever changes.
REFUNDING = ("status", "version", "refunded_amount", "reserved_amount", "updated_at")
TABLES = """
    step, given, payment, session, capture, refund, money_case, dispute, event, delivery, callback,
    idempotency, gateway_outage, ledger_entry
"""
LOG = (
    """
    CREATE TABLE step (number bigint GENERATED ALWAYS AS IDENTITY, payment_id uuid, before text,
        after text)
    """,
    """
    CREATE FUNCTION log_step() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO step (payment_id, before, after) VALUES (NEW.id, OLD.status, NEW.status);
        RETURN NULL;
    END $$
    """,
    """
    CREATE TRIGGER log_step AFTER UPDATE OF status ON payment
        FOR EACH ROW EXECUTE FUNCTION log_step()
    """,
    "CREATE TABLE given (capture_id uuid, held numeric, amount numeric)",
    """
    CREATE FUNCTION log_given() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO given (capture_id, held, amount) VALUES (NEW.id,
            NEW.refunded_minor + NEW.reserved_minor + NEW.disputed_minor, NEW.amount_minor);
        RETURN NULL;
    END $$
    """,
    """
    CREATE TRIGGER log_given AFTER UPDATE ON capture FOR EACH ROW
        WHEN (NEW.refunded_minor + NEW.reserved_minor > OLD.refunded_minor + OLD.reserved_minor)
        EXECUTE FUNCTION log_given()
    """,
    "ALTER TABLE ledger_entry DISABLE TRIGGER ledger_append_only",
)
PAYMENTS_MAX = 6
SESSIONS = """
    SELECT s.id
    FROM session s
    JOIN payment p ON p.id = s.payment_id
    ORDER BY p.status = 'PROCESSING' DESC, s.opened_at DESC, s.id
"""
#: Captures that can be disputed: first what paid a payment, and what else came for it.
CAPTURES = """
    SELECT id, reference, amount_minor, currency
    FROM capture
    ORDER BY coalesce(payment_id = $1, false) DESC, credited DESC, captured_at DESC, id
"""
HOLDING = {DisputeState.OPEN, DisputeState.UNDER_REVIEW, DisputeState.LOST}
DAYS_S = 3 * 24 * 3600
OTHERS = ("select", "cancel", "work", "look", "callback", "refund", "money", "dispute")

Act = Coroutine[Any, Any, Any]
numbers = st.integers(0, 11)
waits = st.sampled_from((1, 6, 31, 31, 31, 31, 130, 130, 700, 1801))
kinds = st.sampled_from(
    [
        *("exact", "exact", "less", "more", "currency", "declined", "cancelled", "closed", "open"),
        *("attempted", "attempted"),
    ]
)
refund_words = st.sampled_from(
    ("done", "done", "pending", "declined", "absent", "silent", "gone", "crash")
)
amounts = st.sampled_from((None, "1590", "1000", "590.01", "0.01", "0.01", "795"))
dispute_states = st.sampled_from(DisputeState)
funds = st.sampled_from(DisputedFunds)
parts = st.sampled_from((1, 2, 2, 3))  # of a third of a capture each; two disputes may be too many
answers = st.sampled_from(
    [
        *["accept"] * 5,
        *("rejected", "unknown", "gone", "crash"),
        *("exact first", "declined first", "cancelled first"),
    ]
)
words = st.sampled_from(
    (
        *("exact", "less", "declined", "closed", "open", "authorising", "silent"),
        *("absent", "attempted", "wavering", "shared", "broken"),
    )
)


class Crash(BaseException):
    """The process dies during the gateway request."""


class Broken(Exception):  # noqa: N818 - as its brothers
    """The adapter has a bug."""


class History(RuleBasedStateMachine):
    """The life of a database: a few payments and all their possible events."""

    world: World
    run: Callable[[Act], Any]

    def __init__(self) -> None:
        super().__init__()
        self.payments: list[Payment] = []
        self.cancelled: set[UUID] = set()  # by the merchant
        self.told: set[tuple[UUID, str]] = set()  # captures we were told of, by session
        self.seen: dict[UUID, Any] = {}
        self.quotes: dict[UUID, tuple[Any, ...]] = {}
        self.asked_for: dict[UUID, tuple[Any, ...]] = {}  # refunds, as they were asked for
        self.ended: dict[UUID, tuple[Any, ...]] = {}  # refunds, how they ended
        self.dispute_ends: set[UUID] = set()
        self.clock_s = 0
        self.stays = "silent"  # what the gateway says in the end, for ever
        self.run(self._begin())

    async def _begin(self) -> None:
        await self.world.rows(f"TRUNCATE {TABLES}, checkout, attempt CASCADE")
        await self.world.move_clock(0)
        self.world.service.accounts.health = GatewayHealth(self.world.database)
        gateway = self.world.gateway
        gateway.answer_create = accept
        gateway.answer_close = SessionReport(state=GatewaySessionState.CLOSED)
        gateway.answer_inquire = SessionReport(state=GatewaySessionState.OPEN)

    # What may happen, each as a coroutine so that two may happen at once.

    async def _select(self, number: int, transfer: bool, answer: str) -> None:
        payment, session_ids = self._payment(number), list[UUID]()

        def answered(request: Any) -> SessionCreated | SessionRejected | OutcomeUnknown:
            session_ids.append(request.session_id)
            if answer == "crash":
                raise Crash
            return NOT_CREATED[answer] if answer in NOT_CREATED else accept(request)

        gateway = self.world.gateway
        gateway.answer_create = answered
        if answer.endswith(" first"):
            gateway.before_answer = lambda session_id: self._callback_of(
                session_id, answer.removesuffix(" first"), uuid4().hex
            )
        try:
            await self.world.select(payment, self.world.transfer if transfer else self.world.card)
        finally:
            gateway.before_answer = None

    async def _callback(self, number: int, kind: str, name: str) -> None:
        rows = await self.world.rows(SESSIONS)
        if rows:
            await self._callback_of(rows[number % len(rows)]["id"], kind, name)

    async def _callback_of(self, session_id: UUID, kind: str, name: str) -> None:
        service, report = self.world.service, _report(session_id, kind, name)
        callback = VerifiedCallback(id=f"{session_id}{name}", session_id=session_id, report=report)
        account_id = self.world.account_id
        receipt = await service.callback_receiver.receive(account_id, callback, b"")
        if receipt.is_new and report.capture:
            self.told.add((session_id, report.capture.reference))

    async def _cancel(self, number: int, by_buyer: bool) -> None:
        payment = self._payment(number)
        async with self.world.database.transaction() as tx:
            if by_buyer:
                await cancel_by_buyer(tx, payment.id)
            else:
                await cancel_by_merchant(tx, payment, None)
        if not by_buyer:
            self.cancelled.add(payment.id)

    async def _look(self, number: int) -> None:
        service, payment = self.world.service, self._payment(number)
        await service.payment_lookup.get_merchant_payment(payment.merchant_id, payment.id)

    async def _work(self, inquiry: str, close: str) -> None:
        service, gateway = self.world.service, self.world.gateway
        gateway.say_inquire = lambda session_id: _word(session_id, inquiry)
        gateway.say_close = lambda session_id: _word(session_id, close)
        await sweep(self.world)
        for ask in await sessions.claim_due(self.world.database, 100, 60, []):
            with suppress(Broken):
                await service.session_inquirer.inquire(ask)
        await apply_deferred_callbacks(self.world.database, 100)

    async def _ask_refund(self, number: int, amount: str | None, key: UUID | None = None) -> None:
        await asked(self.world, self._paid(number), amount, key)

    async def _refund_callback(self, number: int, word: str, name: str) -> None:
        rows = await self.world.rows("SELECT id FROM refund ORDER BY status <> 'PENDING', id DESC")
        if rows and word in REFUND_WORDS:
            refund_id = rows[number % len(rows)]["id"]
            await hear(self.world, refund_id, REFUND_WORDS[word], name=f"{refund_id}{name}")

    async def _refund_work(self, sent: str, inquired: str) -> None:
        gateway = self.world.gateway
        gateway.say_refund = lambda request: _refund_word(request, sent)
        gateway.say_inquire_refund = lambda request: _refund_word(request, inquired)
        for item in await due(self.world):
            with suppress(Crash):
                await self.world.service.refund_sender.process(item)

    async def _dispute(
        self, number: int, name: str, state: DisputeState, funds: DisputedFunds, thirds: int
    ) -> None:
        captures = await self.world.rows(CAPTURES, self._paid(number).id)
        if not captures:
            return
        capture = captures[number % 4 // 2 % len(captures)]
        report = DisputeReport(
            reference=f"du-{capture['id']}-{name}",
            capture=capture["reference"],
            state=state,
            funds=funds,
            amount_minor=int(capture["amount_minor"]) * thirds // 3,
            currency=capture["currency"],
        )
        service = self.world.service
        callback = VerifiedCallback(id=uuid4().hex, dispute=report)
        await service.callback_receiver.receive(self.world.account_id, callback, b"")

    async def _auto_refund(self, on: bool) -> None:
        await self.world.rows("UPDATE merchant SET auto_refund = $1", on)

    # The rules.

    @initialize(word=words)
    def goes_on_saying(self, word: str) -> None:
        self.stays = word

    @precondition(lambda self: len(self.payments) < PAYMENTS_MAX)
    @rule(ttl_s=st.sampled_from((1800, 60, 7200, 7200)), answer=answers, selects=st.integers(0, 3))
    def create(self, ttl_s: int, answer: str, selects: int) -> None:
        self.payments.append(self.run(self.world.create(expires_in_s=ttl_s)))
        if selects:
            self.it_holds()
            self.do(self._select(1, False, answer))

    @precondition(lambda self: self.payments)
    @rule(number=numbers, transfer=st.booleans(), answer=answers)
    def select(self, number: int, transfer: bool, answer: str) -> None:
        self.do(self._select(number, transfer, answer))

    @precondition(lambda self: self.payments)
    @rule(transfer=st.booleans(), kind=kinds)
    def change_method_and_hear_the_old(self, transfer: bool, kind: str) -> None:
        self.world.gateway.say_inquire = lambda session_id: _word(session_id, "open")
        self.do(self._select(1, transfer, "accept"))
        self.do(self._select(1, not transfer, "accept"))
        self.do(self._callback(1, kind, "b"))

    @precondition(lambda self: self.payments)
    @rule(number=numbers, kind=kinds, name=st.sampled_from("abc"))
    def callback(self, number: int, kind: str, name: str) -> None:
        self.do(self._callback(number, kind, name))

    @precondition(lambda self: self.payments)
    @rule(number=numbers, does=st.sampled_from([*["look"] * 6, "cancel", "buyer cancel"]))
    def visit(self, number: int, does: str) -> None:
        self.do(self._look(number) if does == "look" else self._cancel(number, does != "cancel"))

    @rule(seconds=waits)
    def wait(self, seconds: int) -> None:
        self.clock_s += seconds
        self.run(self.world.move_clock(self.clock_s))

    @precondition(lambda self: self.payments)
    @rule(inquiry=words, close=words)
    def work(self, inquiry: str, close: str) -> None:
        self.do(self._work(inquiry, close))

    @precondition(lambda self: len(self.payments) < PAYMENTS_MAX)
    @rule(kinds=st.tuples(kinds, kinds), amount=amounts, sent=refund_words)
    def pay_and_ask_for_it_back(
        self, kinds: tuple[str, str], amount: str | None, sent: str
    ) -> None:
        self.payments.append(self.run(self.world.create(expires_in_s=7200)))
        self.it_holds()
        self.do(self._select(1, False, "accept"))
        self.do(self._callback(0, "exact", "a"), self._callback(0, kinds[0], "b"))
        self.it_holds()
        self.do(self._ask_refund(1, amount), self._callback(0, kinds[1], "c"))
        self.do(self._refund_work(sent, "done"))

    @precondition(lambda self: self.payments)
    @rule(number=numbers, amount=amounts, sent=refund_words, then=refund_words)
    def refund(self, number: int, amount: str | None, sent: str, then: str) -> None:
        self.do(self._ask_refund(number, amount))
        self.it_holds()
        self.do(self._refund_work(sent, "pending"))
        self.it_holds()
        self.do(self._refund_callback(number, then, uuid4().hex))

    @precondition(lambda self: self.payments)
    @rule(kind=kinds, close=words)
    def decline_thrice(self, kind: str, close: str) -> None:
        self.world.gateway.say_inquire = lambda session_id: _word(session_id, "open")
        self.do(self._select(1, False, "accept"))
        for _ in range(3):
            self.do(self._callback(0, "attempted", uuid4().hex))
        self.it_holds()
        self.do(self._callback(0, kind, "c"), self._work("open", close))

    @precondition(lambda self: self.payments)
    @rule(sent=refund_words, inquired=refund_words)
    def work_on_refunds(self, sent: str, inquired: str) -> None:
        self.do(self._refund_work(sent, inquired))

    @precondition(lambda self: self.payments)
    @rule(number=numbers, word=refund_words, name=st.sampled_from("abcd"))
    def refund_callback(self, number: int, word: str, name: str) -> None:
        self.do(self._refund_callback(number, word, name))

    @precondition(lambda self: self.payments)
    @rule(number=numbers, parts=st.tuples(amounts, amounts), same=st.booleans())
    def two_refunds(self, number: int, parts: tuple[str | None, str | None], same: bool) -> None:
        key = uuid4() if same else None
        self.do(*(self._ask_refund(number, part, key) for part in parts))

    @precondition(lambda self: self.payments)
    @rule(number=numbers, name=st.sampled_from("ab"), states=st.tuples(dispute_states,
        dispute_states), funds=funds, thirds=parts, amount=amounts)  # fmt: skip
    def dispute(
        self,
        number: int,
        name: str,
        states: tuple[DisputeState, DisputeState],
        funds: DisputedFunds,
        thirds: int,
        amount: str | None,
    ) -> None:
        for state in states:
            before = {key: payment["status"] for key, payment in self.seen.items()}
            self.do(self._dispute(number, name, state, funds, thirds))
            self.it_holds()
            after = {key: payment["status"] for key, payment in self.seen.items()}
            assert after == before, "a dispute changed a payment's status"
            self.do(self._ask_refund(number, amount))
            self.it_holds()

    @rule(on=st.booleans())
    def policy(self, on: bool) -> None:
        self.do(self._auto_refund(on))

    @precondition(lambda self: self.payments)
    @rule(channel=st.sampled_from(GatewayChannel), silent=st.booleans())
    def outage(self, channel: GatewayChannel, silent: bool) -> None:
        health, account_id = self.world.health, self.world.account_id
        for _ in range(FAILURES_MAX):
            self.do(
                health.record_result(
                    account_id, channel, OutcomeUnknown(detail="?") if silent else None
                )
            )

    @precondition(lambda self: self.payments)
    @rule(number=numbers, kinds=st.tuples(kinds, kinds), names=st.sampled_from(("aa", "ab")),
        other=st.sampled_from(OTHERS))  # fmt: skip
    def together(self, number: int, kinds: tuple[str, str], names: str, other: str) -> None:
        acts: dict[str, Callable[[], Act]] = {
            "select": lambda: self._select(number, True, "accept"),
            "cancel": lambda: self._cancel(number, False),
            "work": lambda: self._work("exact", "closed"),
            "look": lambda: self._look(number),
            "callback": lambda: self._callback(number, kinds[1], names[1]),
            "refund": lambda: self._ask_refund(number, "590.01"),
            "money": lambda: self._refund_work("done", "done"),
            "dispute": lambda: self._dispute(
                number, "a", DisputeState.OPEN, DisputedFunds.WITHDRAWN, 2
            ),
        }
        self.do(self._callback(number, kinds[0], names[0]), acts[other]())

    # What must hold after every step.

    @invariant()
    def it_holds(self) -> None:
        self.run(self._check())

    async def _check(self) -> None:
        rows = self.world.rows
        steps = await rows("SELECT payment_id, before, after FROM step ORDER BY number")
        assert {(step["before"], step["after"]) for step in steps} <= ARROWS
        payments = {row["id"]: row for row in await rows("SELECT * FROM payment")}
        sessions = {row["id"]: row for row in await rows("SELECT * FROM session")}
        told = await rows("SELECT payment_id, type FROM event")
        for payment in payments.values():
            self._check_payment(
                payment, [e["type"] for e in told if e["payment_id"] == payment["id"]]
            )
        self._check_sessions(payments, sessions)
        captures = await rows("SELECT * FROM capture")
        cases = await rows("SELECT * FROM money_case")
        own = [case for case in cases if case["refund_id"] is None and case["kind"] != "DISPUTE"]
        about = Counter(item["capture_id"] for item in own)
        self._check_disputes(
            captures, cases, await rows("SELECT * FROM dispute"), await rows("SELECT * FROM given")
        )
        self._check_money(payments, sessions, captures, about)
        self._check_refunds(payments, captures, cases, await rows("SELECT * FROM refund"))
        assert await ledger_check_store.find_differences(self.world.database) == []

    def _check_payment(self, payment: Any, told: list[str]) -> None:
        status, before = payment["status"], self.seen.get(payment["id"])
        if before is not None:
            assert payment["version"] >= before["version"]
            assert payment["updated_at"] >= before["updated_at"]
            if before["status"] in WAS_PAID:
                changed = {name for name, value in payment.items() if value != before[name]}
                assert changed <= set(REFUNDING), "a paid payment changed"
                assert payment["refunded_amount"] >= before["refunded_amount"]
            elif before["status"] in ENDING:
                assert payment == before, "an ended payment changed"
        self.seen[payment["id"]] = payment
        if status == "CANCELLED":
            assert payment["cancelled_at"] < payment["expires_at"]
            by_merchant = payment["id"] in self.cancelled
            assert told == (["payment.cancelled"] if by_merchant else [])
        else:
            assert told == ([f"payment.{ENDING[status]}"] if status in ENDING else [])

    def _check_sessions(self, payments: Any, sessions: Any) -> None:
        opening = Counter(s["payment_id"] for s in sessions.values() if s["life"] == "opening")
        assert all(count == 1 for count in opening.values())
        for session in sessions.values():
            quote = tuple(session[name] for name in ("total_amount", "total_minor", "fee_amount",
                "estimated_tax", "currency", "provider", "payment_id"))  # fmt: skip
            assert self.quotes.setdefault(session["id"], quote) == quote
            payment = payments[session["payment_id"]]
            assert session["opened_at"] < payment["expires_at"]
            if payment["status"] in ENDING:
                end = "paid" if payment["status"] in WAS_PAID else payment["status"].lower()
                assert session["opened_at"] <= payment[f"{end}_at"]
        for payment in payments.values():
            if payment["session_id"] is not None:
                assert sessions[payment["session_id"]]["payment_id"] == payment["id"]
                life = sessions[payment["session_id"]]["life"]
                assert life != "opening"
                assert payment["status"] != "EXPIRED" or life in {"closing", "ended"}

    def _check_money(self, payments: Any, sessions: Any, captures: Any, cases: Any) -> None:
        credited = {c["payment_id"]: c for c in captures if c["credited"]}
        was_paid = {p["id"] for p in payments.values() if p["status"] in WAS_PAID}
        assert credited.keys() == was_paid
        for capture in captures:
            assert cases[capture["id"]] == (0 if capture["credited"] else 1)
        for payment_id, capture in credited.items():
            session = sessions[capture["session_id"]]
            assert payments[payment_id]["session_id"] == session["id"]
            assert capture["amount_minor"] == session["total_minor"]
            assert capture["currency"] == session["currency"]
        assert self.told <= {(c["session_id"], c["reference"]) for c in captures}

    def _check_disputes(self, captures: Any, cases: Any, disputes: Any, given: Any) -> None:
        """A dispute has one case and reserves its amount, which cannot be refunded."""
        for capture in captures:
            own = [d for d in disputes if d["capture_id"] == capture["id"]]
            held = sum(d["amount_minor"] for d in own if d["state"] in HOLDING)
            assert capture["disputed_minor"] == held
        about = [case["id"] for case in cases if case["kind"] == "DISPUTE"]
        assert sorted(about) == sorted(d["case_id"] for d in disputes)
        for moment in given:  # when a refund was promised; what has gone back may be disputed later
            assert moment["held"] <= moment["amount"], "more was promised than no dispute holds"
        for dispute in disputes:
            end = dispute["state"]
            if dispute["id"] in self.dispute_ends:
                assert end in {"won", "lost", "closed"}, "a dispute that ended is open again"
            if end in {"won", "lost", "closed"}:
                self.dispute_ends.add(dispute["id"])

    def _check_refunds(self, payments: Any, captures: Any, cases: Any, refunds: Any) -> None:
        for payment in payments.values():
            own = [r for r in refunds if r["payment_id"] == payment["id"] and r["case_id"] is None]
            given = sum(r["amount"] for r in own if r["status"] == "SUCCEEDED")
            promised = sum(r["amount"] for r in own if r["status"] == "PENDING")
            assert (payment["refunded_amount"], payment["reserved_amount"]) == (given, promised)
            assert given + promised <= payment["amount"]
            if payment["status"] in WAS_PAID:
                status = "PARTIALLY_REFUNDED" if given else "PAID"
                whole = given == payment["amount"]
                assert payment["status"] == ("REFUNDED" if whole else status)
        for capture in captures:
            of = [r for r in refunds if r["capture_id"] == capture["id"]]
            given = sum(r["amount_minor"] for r in of if r["status"] == "SUCCEEDED")
            promised = sum(r["amount_minor"] for r in of if r["status"] == "PENDING")
            assert (capture["refunded_minor"], capture["reserved_minor"]) == (given, promised)
            assert given + promised <= capture["amount_minor"]
            assert all((r["case_id"] is None) == capture["credited"] for r in of)
        for refund in refunds:
            self._check_refund(refund, [c for c in cases if c["id"] == refund["case_id"]])

    def _check_refund(self, refund: Any, its_case: list[Any]) -> None:
        what = tuple(refund[name] for name in ("capture_id", "payment_id", "amount_minor",
            "amount", "case_id", "requested_by"))  # fmt: skip
        assert self.asked_for.setdefault(refund["id"], what) == what
        if refund["status"] != "PENDING":
            end = (refund["status"], refund["failure_reason"])
            assert self.ended.setdefault(refund["id"], end) == end, "a refund ended twice"
        for case in its_case:
            assert (case["status"] == "REFUNDED") == (refund["status"] == "SUCCEEDED")

    def teardown(self) -> None:
        """Advance the clock and run the workers until every payment has ended once."""
        self.run(self._come_to_an_end())
        self.it_holds()

    async def _leave_processing(self) -> None:
        """Whatever a gateway reports for more than a day, no payment stays PROCESSING."""
        start_s = self.clock_s + 7200
        for hours in (0, 0.1, 0.2, 12, 24.2, 24.3, 24.4):
            await self.world.move_clock(start_s + hours * 3600)
            await self._work(self.stays, self.stays)
        left = await self.world.rows("SELECT status FROM payment WHERE status LIKE 'P%ING'")
        assert left == [], f"a gateway that goes on saying {self.stays!r} holds up a payment"
        self.clock_s = start_s + 25 * 3600

    async def _come_to_an_end(self) -> None:
        await self._leave_processing()
        await self._check()
        for day in range(1, 4):
            await self.world.move_clock(self.clock_s + day * DAYS_S / 3)
            await self._work("closed", "closed")
            await self._work("closed", "closed")
            for _ in range(2):
                await self.world.health.record_result(
                    self.world.account_id, GatewayChannel.REFUNDS, None
                )
                await self._refund_work("done", "done")
        left = await self.world.rows("SELECT status FROM payment WHERE status LIKE 'P%ING'")
        alive = await self.world.rows("SELECT life FROM session WHERE life <> 'ended'")
        unpaid = await self.world.rows("SELECT status FROM refund WHERE status = 'PENDING'")
        assert (left, alive, unpaid) == ([], [], [])

    def do(self, *acts: Act) -> None:
        """Run one or several concurrent actions, which may be rejected but must not fail."""

        async def all_of() -> list[Any]:
            return await asyncio.gather(*acts, return_exceptions=True)

        for result in self.run(all_of()):
            if isinstance(result, RefusedError):
                assert result.code is not ErrorCode.INVALID_TRANSITION, result
            elif isinstance(result, BaseException) and not isinstance(result, Crash | Broken):
                raise result

    def _payment(self, number: int) -> Payment:
        """Choose a payment, usually one that has not ended, newest first."""
        living = [
            payment for payment in self.payments if self.seen[payment.id]["status"] not in ENDING
        ]
        chosen = living if living and number % 4 else self.payments
        return chosen[-1 - number // 4 % len(chosen)]

    def _paid(self, number: int) -> Payment:
        """Choose a payment, usually a paid one, newest first."""
        paid = [payment for payment in self.payments if self.seen[payment.id]["status"] in WAS_PAID]
        chosen = paid if paid and number % 6 else self.payments
        return chosen[-1 - number // 4 % len(chosen)]


NOT_CREATED = {
    "rejected": SessionRejected(detail="no"),
    "unknown": OutcomeUnknown(detail="?"),
    "gone": NotContacted(detail="no connection"),
}
REFUND_WORDS = {"done": DONE, "pending": PENDING, "declined": DECLINED, "absent": ABSENT}
NO_WORDS = {"silent": OutcomeUnknown(detail="?"), "gone": NotContacted(detail="no connection")}


def _refund_word(request: GatewayRefundRequest, word: str) -> RefundReport | OutcomeUnknown:
    if word == "crash":
        raise Crash
    found = REFUND_WORDS | NO_WORDS
    known = found[word]
    if isinstance(known, RefundReport) and known.reference is not None:
        return replace(known, reference=f"re_{request.refund_id}")
    return known


def _report(session_id: UUID, kind: str, name: str) -> SessionReport:
    reference = f"{session_id}-{name}"
    amounts = {"exact": 159000, "less": 158999, "more": 159001, "currency": 159000}
    if kind in amounts:
        currency = "USD" if kind == "currency" else "THB"
        return captured(amounts[kind], currency=currency, reference=reference)
    return declined() if kind == "declined" else SessionReport(state=GatewaySessionState(kind))


_wavering = itertools.cycle(("authorising", "open", "silent"))


def _word(session_id: UUID, word: str) -> SessionReport | OutcomeUnknown:
    if word == "broken":
        raise Broken
    if word == "shared":  # one capture, told of every session
        return captured(159000, reference="shared")
    said = next(_wavering) if word == "wavering" else word
    return OutcomeUnknown(detail="silent") if said == "silent" else _report(session_id, said, "a")


class TalkingGateway(FakeGateway):
    """A fake that can call back before it responds, with a separate name for each session."""

    before_answer: Callable[[UUID], Act] | None = None
    say_refund: Callable[[Any], RefundReport | OutcomeUnknown]
    say_inquire_refund: Callable[[Any], RefundReport | OutcomeUnknown]
    say_inquire: Callable[[UUID], SessionReport | OutcomeUnknown] = staticmethod(
        lambda one: _word(one, "open")
    )
    say_close: Callable[[UUID], SessionReport | OutcomeUnknown] = staticmethod(
        lambda one: _word(one, "closed")
    )

    async def create_session(
        self, account: Any, request: Any
    ) -> SessionCreated | SessionRejected | OutcomeUnknown:
        if self.before_answer is not None:
            await self.before_answer(request.session_id)
        return await super().create_session(account, request)

    async def close_session(self, account: Any, session: Any) -> SessionReport | OutcomeUnknown:
        await super().close_session(account, session)
        return self.say_close(session.session_id)

    async def inquire(self, account: Any, session: Any) -> SessionReport | OutcomeUnknown:
        await super().inquire(account, session)
        return self.say_inquire(session.session_id)

    async def refund(self, account: Any, request: Any) -> RefundReport | OutcomeUnknown:
        await super().refund(account, request)
        return self.say_refund(request)

    async def inquire_refund(self, account: Any, request: Any) -> RefundReport | OutcomeUnknown:
        await super().inquire_refund(account, request)
        return self.say_inquire_refund(request)


async def execute(world: World, *statements: str) -> None:
    connection = await world.open_connection()
    for statement in statements:
        await connection.execute(statement)
    await connection.close()


@pytest.fixture
def stage(settings: Settings) -> Iterator[type[History]]:
    """A service in a separate event loop, for all histories."""

    async def open_world() -> World:
        gateway = TalkingGateway()
        world = await make_world(await open_service(settings, {"fake": gateway}), gateway)
        await execute(world, *LOG)
        return world

    with asyncio.Runner() as runner:
        world = runner.run(open_world())
        yield type("Staged", (History,), {"world": world, "run": staticmethod(runner.run)})
        runner.run(world.service.close())


@pytest.mark.timeout(0)
def test_the_invariants_hold_in_every_history(stage: type[History]) -> None:
    run_state_machine_as_test(stage, settings=PROFILE)
