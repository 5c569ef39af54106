"""Operations over two cells on two databases: each is done where its rows are, with its entry."""

import asyncio
import base64
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from pydantic import SecretStr

from payintent.domain import ids
from payintent.domain.errors import (
    ErrorCode,
    LockTimeoutError,
    RefusedError,
    StorageUnavailableError,
)
from payintent.domain.operator import Role
from payintent.domain.payment import Payment
from payintent.id_generator import IdGenerator
from payintent.operations import submit
from payintent.operations.approvals import Approve, ListApprovals, Reject, ShowApproval
from payintent.operations.audit_log import ListAuditEntries
from payintent.operations.base import Actor, ChangeOperation
from payintent.operations.cases import ResolveCase, ShowCase
from payintent.operations.cells import CopyAnew, ShowCell
from payintent.operations.copy_tables import open_copiers
from payintent.operations.keyring import RotateKeyring, encrypting
from payintent.operations.ledger import BackfillLedger
from payintent.operations.ledger_adjustment import AdjustLedger
from payintent.operations.merchant_moves import MoveMerchant
from payintent.operations.operators import RevokeOperatorToken
from payintent.operations.payers import ErasePayer, ExportPayer
from payintent.operations.payment_details import ShowPayment, ShowTimeline
from payintent.operations.payments import CancelPayment, RefundPayment
from payintent.operations.payouts import ImportPayouts, RecordPayout, ReversePayout
from payintent.operations.refunds import AskRefundsFirst, ListRefunds, RejectRefund, ShowRefund
from payintent.operations.tax_rates import SetTaxRate
from payintent.operations.webhooks import ReplayEvent, ReplayMissedEvents, ShowEvent
from payintent.service import open_service
from payintent.storage import encryption_keys
from payintent.storage.database import Database
from payintent.storage.proposals import Proposal
from tests.payments.refunding import asked, paid
from tests.support.cell_schema import OF_CELLS
from tests.support.cells import until_it_answers
from tests.support.databases import Databases
from tests.support.fakes import captured
from tests.support.two_cells import TwoCells, two_cells
from tests.support.world import World

pytestmark = OF_CELLS

_BY_HAND = Actor("cli:ada", "ticket 7")
_ADA, _ALAN, _EVE = (Actor(who, "ticket 7", Role.ADMIN) for who in ("Ada", "Alan", "Eve"))


@pytest.fixture
async def two(
    world: World, databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[TwoCells]:
    """Have three operators; nobody copies unless a test does."""
    monkeypatch.setattr(submit, "_COPIED_S", 0.1)
    for who in ("Ada", "Alan", "Eve"):
        await world.operator_token(who)
    async with two_cells(world, databases, awaits_copies=True, api_key_cache_s=0.0) as made:
        yield made


class _Lines:
    """The audit entries that came since, by their cells."""

    def __init__(self, two: TwoCells) -> None:
        self._cells = two.world.service.cells
        self._seen: set[UUID] = set()

    async def new(self) -> dict[int, list[str]]:
        found: dict[int, list[str]] = {}
        for number, database in self._cells.items():
            rows = await database.fetch("SELECT id, action FROM audit ORDER BY id")
            fresh = [row for row in rows if row["id"] not in self._seen]
            assert {ids.cell_of_timed(row["id"]) for row in fresh} <= {number}
            self._seen |= {row["id"] for row in fresh}
            if fresh:
                found[number] = [row["action"] for row in fresh]
        return found


async def _lines(two: TwoCells) -> _Lines:
    lines = _Lines(two)
    await lines.new()
    return lines


async def _run(two: TwoCells, operation: Any, actor: Actor = _BY_HAND) -> Any:
    return await two.world.service.run_operation(operation, actor)


async def _case(two: TwoCells) -> str:
    """Let money come that names a session of cell 1 that is not there."""
    session_id = IdGenerator(cell=1).new_session_id()
    report = captured(159000, reference=f"lost-{session_id}")
    await two.tell(session_id=session_id, report=report)
    [row] = await two.world.rows("SELECT id FROM money_case ORDER BY id DESC LIMIT 1")
    return ids.format_id(ids.CASE, row["id"])


async def _event(two: TwoCells, payment: Payment) -> UUID:
    [row] = await two.world.rows("SELECT id FROM event WHERE payment_id = $1 LIMIT 1", payment.id)
    return row["id"]


def _name(payment: Payment) -> str:
    return ids.format_id(ids.PAYMENT, payment.id)


def _payout(world: World, reference: str = "bank-1") -> RecordPayout:
    fields = {"amount": "10.00", "currency": "THB", "reference": reference}
    return RecordPayout(merchant_id=world.merchant_id, **fields)


def _adjustment(world: World) -> AdjustLedger:
    return AdjustLedger(
        debit=f"merchant_payable:{world.merchant_id}",
        credit="fee_income",
        amount_minor="500",
        currency="THB",
        note="a fee",
    )


async def _changes_of_cell_1(two: TwoCells) -> dict[str, Any]:
    """Arrange what an operation of each kind can be done to, in cell 1."""
    world = two.world
    payment, open_payment = await paid(world), await world.create()
    refund = await asked(world, await paid(world))
    return {
        "payment.cancel": CancelPayment(payment_id=_name(open_payment)),
        "payment.refund": RefundPayment(payment_id=_name(payment), amount="1.00"),
        "refund.reject": RejectRefund(
            refund_id=ids.format_id(ids.REFUND, refund.id), note="not now"
        ),
        "case.resolve": ResolveCase(case_id=await _case(two), resolution="accept", note="ours"),
        "webhooks.replay": ReplayEvent(event_id=await _event(two, payment)),
        "payout.record": _payout(world),
    }


async def test_an_operation_and_its_entry_are_where_its_rows_are(two: TwoCells) -> None:
    world = two.world
    changes = await _changes_of_cell_1(two)
    lines = await _lines(two)
    results = {action: await _run(two, change) for action, change in changes.items()}
    assert await lines.new() == {1: list(changes)}
    await _run(two, ReversePayout(payout_id=results["payout.record"].id, note="came back"))
    assert await lines.new() == {1: ["payout.reverse"]}
    assert await two.count(0) == {}
    refund_id = results["payment.refund"].id
    assert (await _run(two, ShowRefund(refund_id=refund_id))).id == refund_id
    of_payment = ListRefunds(payment_id=changes["payment.refund"].payment_id)
    assert [refund.id for refund in await _run(two, of_payment)] == [refund_id]
    cancel, replay = changes["payment.cancel"], changes["webhooks.replay"]
    assert (await _run(two, ShowPayment(payment_id=cancel.payment_id)))["status"] == "CANCELLED"
    page = await _run(two, ShowTimeline(payment_id=cancel.payment_id, of="operators"))
    assert len(page.entries) == 1, "who cancelled it"
    assert (await _run(two, ShowEvent(event_id=replay.event_id))).event.id == replay.event_id
    case_id = changes["case.resolve"].case_id
    assert (await _run(two, ShowCase(case_id=case_id))).status == "ACCEPTED"
    other = (await world.other_merchant()).merchant.id
    payment = await world.create(merchant_id=other)
    await lines.new()
    await _run(two, CancelPayment(payment_id=_name(payment)))
    assert await lines.new() == {0: ["payment.cancel"]}


async def test_the_audit_log_is_one_list_of_all_cells_a_page_at_a_time(two: TwoCells) -> None:
    world = two.world
    other = (await world.other_merchant()).merchant.id
    made = [await world.create(merchant_id=one) for one in (world.merchant_id, other) * 3]
    for payment in made:
        await _run(two, CancelPayment(payment_id=_name(payment)))
    seen: list[UUID] = []
    wanted = ListAuditEntries(of="payment", limit=4)
    while entries := await _run(two, wanted):
        seen += [entry.id for entry in entries]
        wanted = ListAuditEntries(of="payment", limit=4, before=entries[-1].id)
    assert len(seen) == 6
    assert seen == sorted(seen, reverse=True)
    assert [ids.cell_of_timed(entry_id) for entry_id in seen] == [0, 1] * 3
    await two.away(1)
    part = await _run(two, ListAuditEntries(of="payment"))
    assert (part.cells_away, len(part)) == ((1,), 3)


async def test_of_two_who_approve_at_once_one_does_it_and_it_is_done_once(two: TwoCells) -> None:
    world, service = two.world, two.world.service
    lines = await _lines(two)
    proposal = await service.submit(_adjustment(world), _ADA)
    assert isinstance(proposal, Proposal)
    assert await lines.new() == {1: ["approval.propose"]}
    approval_id = ids.format_id(ids.APPROVAL, proposal.id)
    assert [view.id for view in await _run(two, ListApprovals(), _ALAN)] == [approval_id]
    assert (await _run(two, ShowApproval(approval_id=approval_id), _ALAN)).status == "WAITING"
    with pytest.raises(RefusedError, match="another person than 'Ada'"):
        await _run(two, Approve(approval_id=approval_id), _ADA)
    both = (_run(two, Approve(approval_id=approval_id), who) for who in (_ALAN, _EVE))
    done, refused = sorted(
        await asyncio.gather(*both, return_exceptions=True), key=lambda x: isinstance(x, Exception)
    )
    assert done.approval.status == "APPROVED"
    assert isinstance(refused, RefusedError)
    assert "it is APPROVED already" in str(refused)
    assert await lines.new() == {1: ["ledger.adjust", "approval.approve"]}
    assert await two.count(0) == {}
    [entry] = await world.rows("SELECT fact FROM ledger_entry")
    assert entry["fact"] == "adjustment"


async def test_who_proposed_is_asked_of_control_and_a_revoked_one_counts_no_more(
    two: TwoCells,
) -> None:
    world, service = two.world, two.world.service
    proposal = await service.submit(_adjustment(world), _ADA)
    approval_id = ids.format_id(ids.APPROVAL, proposal.id)
    await two.away(0)
    with pytest.raises(RefusedError, match="cell 0 does not answer") as refused:
        await _run(two, Approve(approval_id=approval_id), _ALAN)
    assert refused.value.code is ErrorCode.SERVICE_UNAVAILABLE
    with pytest.raises(RefusedError, match="does not answer"):
        await service.submit(_adjustment(world), _ADA)
    assert (await _run(two, ShowApproval(approval_id=approval_id), _ALAN)).status == "WAITING"
    [row] = await world.rows("SELECT count(*) AS n FROM proposal")
    assert row["n"] == 1, "nothing half done"
    await two.back(0)
    [token] = await service.cells.control.fetch(
        "SELECT public_id FROM operator_token WHERE name = 'Ada'"
    )
    await _run(two, RevokeOperatorToken(public_id=token["public_id"]))
    with pytest.raises(RefusedError, match="may not propose it any more"):
        await _run(two, Approve(approval_id=approval_id), _ALAN)
    rejected = await _run(two, Reject(approval_id=approval_id, note="she has left"), _ALAN)
    assert rejected.status == "REJECTED"
    assert await world.rows("SELECT FROM ledger_entry") == []


async def test_operations_of_a_cell_go_on_while_control_is_away(two: TwoCells) -> None:
    changes = await _changes_of_cell_1(two)
    payout = changes.pop("payout.record")
    await two.away(0)
    for change in changes.values():
        await _run(two, change)
    with pytest.raises(RefusedError, match="cell 0 does not answer"):  # it may be owed less there
        await _run(two, payout)
    rows = await two.world.rows("SELECT action FROM audit ORDER BY id")
    assert [row["action"] for row in rows][-len(changes) :] == list(changes)
    with pytest.raises(RefusedError, match="cell 0 does not answer"):
        await _run(two, SetTaxRate(country="TH", rate=Decimal("0.05")))


async def test_a_cell_that_is_away_is_named_and_nothing_is_half_done(two: TwoCells) -> None:
    service = two.world.service
    changes = await _changes_of_cell_1(two)
    lines = await _lines(two)
    await two.away(1)
    for change in (*changes.values(), _adjustment(two.world)):
        with pytest.raises(RefusedError, match="cell 1 does not answer") as refused:
            await service.submit(change, _BY_HAND)
        assert refused.value.code is ErrorCode.SERVICE_UNAVAILABLE
    await two.back(1)
    assert await lines.new() == {}
    control = service.cells.control
    await control.fetch("INSERT INTO cell (number) VALUES (2)")
    elsewhere = ids.format_id(ids.PAYMENT, IdGenerator(cell=2).new_id())
    with pytest.raises(RefusedError, match="cell 2 was added after this process began"):
        await _run(two, CancelPayment(payment_id=elsewhere))
    nowhere = ids.format_id(ids.PAYMENT, IdGenerator(cell=3).new_id())
    with pytest.raises(RefusedError, match="no payment"):
        await _run(two, CancelPayment(payment_id=nowhere))
    assert await lines.new() == {}


async def test_a_file_of_payouts_is_of_the_merchants_of_one_cell(two: TwoCells) -> None:
    world = two.world
    await paid(world)
    other = (await world.other_merchant()).merchant.id
    head = "merchant,amount,currency,chain,reference,paid_on"
    ours = f"{world.merchant_id},10.00,THB,,bank-1,"
    lines = await _lines(two)
    with pytest.raises(RefusedError, match="a file is of the merchants of one cell"):
        await _run(two, ImportPayouts(lines=[head, ours, f"{other},1.00,THB,,bank-2,"]))
    assert (await _run(two, ImportPayouts(lines=[head, ours]))).recorded == 1
    assert await lines.new() == {1: ["payout.import"]}


async def test_a_change_of_all_cells_has_an_entry_in_each_and_says_which_it_missed(
    two: TwoCells,
) -> None:
    world = two.world
    other = await world.other_merchant()
    made = [await world.create(merchant_id=one) for one in (world.merchant_id, other.merchant.id)]
    for payment in made:
        await _run(two, CancelPayment(payment_id=_name(payment)))
    lines = await _lines(two)
    missed = ReplayMissedEvents(since=made[0].created_at)
    for database in world.service.cells:
        await database.fetch("UPDATE delivery SET state = 'dead'")
    foreseen = await world.service.foresee(missed, _BY_HAND)
    assert (foreseen["events"], foreseen["merchants"]) == (2, 2)
    assert (await _run(two, missed)).events == 2
    assert await lines.new() == {0: ["webhooks.replay-missed"], 1: ["webhooks.replay-missed"]}
    mine = ReplayMissedEvents(merchant_id=world.merchant_id)
    assert (await _run(two, mine)).events == 0
    assert await lines.new() == {1: ["webhooks.replay-missed"]}
    refund = await asked(world, await paid(world))
    await two.away(1)
    words = "cell 1 did not answer in time, cell 0 has it: do it again"
    for change in (AskRefundsFirst(), BackfillLedger()):
        with pytest.raises(RefusedError, match=words):
            await _run(two, change)
    await two.back(1)
    assert await lines.new() == {0: ["refund.ask-first", "ledger.backfill"]}
    assert (await _run(two, AskRefundsFirst())).refunds == 1
    [row] = await world.rows("SELECT step FROM refund WHERE id = $1", refund.id)
    assert row["step"] == "sent"


async def test_after_a_restore_of_one_cell_refunds_of_others_are_sent_as_ever(
    two: TwoCells,
) -> None:
    refund = await asked(two.world, await paid(two.world))
    lines = await _lines(two)
    assert (await _run(two, AskRefundsFirst(cell=0))).refunds == 0
    assert await lines.new() == {0: ["refund.ask-first"]}
    step = "SELECT step FROM refund WHERE id = $1"
    assert [row["step"] for row in await two.world.rows(step, refund.id)] == ["queued"]
    of_cell_1 = AskRefundsFirst(cell=1)
    described = await two.world.service.describe(of_cell_1, _BY_HAND)
    assert "every refund that waits to be sent in cell 1 is asked about first" in described
    await two.away(0)
    assert (await _run(two, of_cell_1)).refunds == 1
    await two.back(0)
    assert await lines.new() == {1: ["refund.ask-first"]}
    assert [row["step"] for row in await two.world.rows(step, refund.id)] == ["sent"]
    with pytest.raises(RefusedError, match="no cell 2"):
        await _run(two, AskRefundsFirst(cell=2))


async def test_a_payer_is_erased_in_one_cell_after_the_other_and_exported_from_both(
    two: TwoCells,
) -> None:
    world, control = two.world, two.world.service.cells.control
    there = await world.cancelled()
    await _run(two, MoveMerchant(merchant_id=world.merchant_id, to=0))
    again = await world.create()
    assert [ids.cell_of_timed(made.id) for made in (there, again)] == [1, 0]
    await control.fetch("UPDATE payment SET status = 'CANCELLED', cancelled_at = clock()")
    export = ExportPayer(merchant_id=world.merchant_id, payer_uid="buyer-1")
    assert [row.id for row in await _run(two, export)] == [_name(there), _name(again)]
    erase = ErasePayer(merchant_id=world.merchant_id, payer_uid="buyer-1")
    lines = await _lines(two)
    first = await _run(two, erase)
    assert (first.payments, first.more) == (1, True)
    assert await lines.new() == {0: ["payer.erase"]}
    last = await _run(two, erase)
    assert (last.payments, last.more) == (1, False)
    assert await lines.new() == {1: ["payer.erase"]}
    with pytest.raises(RefusedError, match="no payer"):
        await _run(two, erase)
    await two.away(1)
    with pytest.raises((RefusedError, StorageUnavailableError), match="cell 1 does not answer"):
        await _run(two, export)
    with pytest.raises(RefusedError, match="cell 1 does not answer"):
        await _run(two, erase)


async def _warned(two: TwoCells, change: ChangeOperation[Any]) -> list[str]:
    warnings: list[str] = []
    await two.world.service.submit(change, _BY_HAND, warn=warnings.append)
    return warnings


async def _rate(database: Database) -> str | None:
    row = await database.row("SELECT rate::text AS rate FROM tax_rate WHERE country = 'TH'")
    return row and row["rate"].rstrip("0")


async def test_a_change_waits_for_its_copies_and_says_which_cell_lacks_it(
    two: TwoCells, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = two.world.service
    control, cell = service.cells
    lacks = ["cell 1 may not have this change yet: it goes on with what was before"]
    assert await _warned(two, SetTaxRate(country="TH", rate=Decimal("0.05"))) == lacks
    assert await _warned(two, await _a_cancel(two)) == [], "nothing of it is copied"
    monkeypatch.setattr(submit, "_COPIED_S", 60.0)
    [copier] = open_copiers(service.cells)
    copying = asyncio.create_task(copier.run())
    try:
        assert await _warned(two, SetTaxRate(country="TH", rate=Decimal("0.06"))) == []
        assert await _rate(cell) == "0.06"
    finally:
        copier.stop()
        await copying
    monkeypatch.setattr(submit, "_COPIED_S", 0.1)
    await two.away(1)
    assert await _warned(two, SetTaxRate(country="TH", rate=Decimal("0.07"))) == lacks
    assert await _rate(control) == "0.07"


async def _a_cancel(two: TwoCells) -> CancelPayment:
    return CancelPayment(payment_id=_name(await two.world.create()))


async def test_copies_of_another_history_are_made_anew_when_an_operator_says_so(
    two: TwoCells,
) -> None:
    service = two.world.service
    _, cell = service.cells
    [copier] = open_copiers(service.cells)
    await cell.fetch("UPDATE configuration_copy SET number = number + 7, token = gen_random_uuid()")
    await _warned(two, SetTaxRate(country="TH", rate=Decimal("0.05")))
    await copier.step()
    assert await _rate(cell) != "0.05", "it is refused"
    shown = await _run(two, ShowCell(number=1))
    assert (shown.changes_behind, shown.answers) == (-6, True)
    lines = await _lines(two)
    assert (await _run(two, CopyAnew(number=1))).cells == [1]
    assert await lines.new() == {1: ["cell.copy-anew"]}
    assert (await _run(two, ShowCell(number=1))).copied_change is None
    await copier.step()
    assert await _rate(cell) == "0.05"
    assert (await _run(two, ShowCell(number=1))).changes_behind == 0
    await two.away(1)
    shown = await _run(two, ShowCell(number=1))
    assert (shown.copied_change, shown.answers) == (None, False)
    assert (await _run(two, ShowCell(number=0))).copied_change is None


async def test_no_key_is_retired_while_a_cell_is_away_or_has_values_of_it(two: TwoCells) -> None:
    service = two.world.service
    proposal = await service.submit(_adjustment(two.world), _ADA)
    [first] = service.settings.keyring.get_secret_value().split(",")
    new = f"new:{base64.b64encode(b'n' * 32).decode()}"
    ring = SecretStr(f"{new},{first}")
    settings = service.settings.model_copy(update={"keyring": ring})
    rotating = await open_service(settings, {"fake": two.world.gateway})
    try:
        warnings: list[str] = []
        lines = await _lines(two)
        await two.away(1)
        rotated = await rotating.submit(RotateKeyring(), _BY_HAND, warn=warnings.append)
        assert (rotated.retired, rotated.callback_secrets) == ([], 1)
        assert "cell 1 does not answer: until it does no key is retired" in warnings
        with pytest.raises(RefusedError, match="cell 1 does not answer"):
            await rotating.foresee(RotateKeyring(), _BY_HAND)
        await two.back(1)
        await until_it_answers(rotating.cells.at(1))
        rotated = await rotating.submit(RotateKeyring(), _BY_HAND)
        assert rotated.retired == [first.partition(":")[0]]
        actions = ["keyring.rotate"]
        assert await lines.new() == {0: 2 * actions, 1: actions}
        approval = Approve(approval_id=ids.format_id(ids.APPROVAL, proposal.id))
        approved = await rotating.run_operation(approval, _ALAN)
        assert approved.approval.status == "APPROVED", "its fields were encrypted again"
    finally:
        await rotating.close()


async def test_who_proposes_in_a_cell_holds_the_key_in_control(two: TwoCells) -> None:
    """A rotation would retire a key that a proposal of a cell is encrypted with just now."""
    service = two.world.service
    context = service.operation_context.within(service.cells.at(1))
    async with encrypting(context):
        with pytest.raises(LockTimeoutError):
            async with service.cells.control.transaction(lock_timeout_ms=50) as tx:
                await encryption_keys.lock_all_keys(tx)
    async with service.cells.control.transaction(lock_timeout_ms=50) as tx:
        await encryption_keys.lock_all_keys(tx)
