"""Cases, refunds and disputes in the console: queues, details and decisions."""

import html
import re
from uuid import UUID

import pytest

from payintent.cases.model import CaseKind
from payintent.console.cases import EXPLANATIONS
from payintent.console.lists import PAGE_ROWS
from payintent.core import ids
from payintent.core.access import Role
from tests.console.operator_browser import sign_in_as, words
from tests.console.test_payments import format_payment_id
from tests.support.fakes import captured
from tests.support.operation_examples import add_refunds_for_approval
from tests.support.world import Api, World

pytestmark = pytest.mark.full

#: The ids increase with time, like the ids that the service creates.
_MANY_CASES = """
    INSERT INTO money_case (id, kind, merchant_id, subject, opened_at)
    SELECT lpad(to_hex(n), 32, '0')::uuid, 'RECONCILIATION', $1, 'line ' || n, clock()
    FROM generate_series(1, $2) n
"""
_DECIDE = re.compile(r'href="(/operations/(?:case|refund)/[^"]+)"')


async def open_case(world: World, reference: str = "cap-1") -> str:
    """Report a capture that is less than its payment; return the id of the case."""
    payment = await world.create()
    session = (await world.select(payment)).session
    await world.report(payment, session.id, captured(1_000, reference=reference))
    [row] = await world.rows("SELECT id FROM money_case WHERE payment_id = $1", payment.id)
    return ids.format_id(ids.CASE, row["id"])


async def test_every_queue_starts_with_the_oldest_item(operator: Api, world: World) -> None:
    for hours in range(3):
        await world.move_clock(3600 * hours)
        payment = await world.create()
        session = (await world.select(payment)).session
        await world.report(payment, session.id, captured(1_000, reference=f"cap-{hours}"))
        await add_refunds_for_approval(world)
        await add_dispute(world, f"dp_{hours}", "open", await newest_case(world))
    await world.move_clock(3600 * 3)
    visitor = await sign_in_as(operator, role=Role.VIEWER)
    for path, is_youngest_first in (
        ("/cases", False),
        ("/cases?status=ALL", True),
        ("/cases?order=newest", True),
        ("/refunds?step=approval", False),
        ("/refunds", True),
        ("/disputes", False),
        ("/disputes?status=ALL", True),
        ("/approvals", False),
    ):
        page = (await visitor.get(path)).body.decode()
        ages = re.findall(r'class="number"><time datetime="([^"]+)"', page) or re.findall(
            r'<time datetime="([^"]+)"', page.partition("<tbody>")[2]
        )
        assert len(set(ages)) >= 3, path
        assert ages == sorted(ages, reverse=is_youngest_first), path


async def test_the_pages_of_a_queue_have_no_gaps_or_duplicates(operator: Api, world: World) -> None:
    await world.rows(_MANY_CASES, world.merchant_id, 3 * PAGE_ROWS + 1)
    visitor = await sign_in_as(operator, role=Role.VIEWER)
    for first, label in (("/cases", "Newer"), ("/cases?order=newest", "Older")):
        path, case_ids = first, list[str]()
        while path:
            page = (await visitor.get(path)).body.decode()
            case_ids += re.findall(r'href="/cases/(case_\w+)["?]', page)
            link = re.search(rf'href="([^"]+)" rel="next">{label}', page)
            path = html.unescape(link[1]) if link else ""
        assert len(case_ids) == len(set(case_ids)) == 3 * PAGE_ROWS + 1
        assert case_ids == sorted(case_ids, reverse=first != "/cases")


async def test_a_case_shows_the_expected_and_the_received_amount(
    operator: Api, world: World
) -> None:
    case_id = await open_case(world)
    await world.move_clock(3 * 3600)
    visitor = await sign_in_as(operator, role=Role.VIEWER)
    list_text = words(await visitor.get("/cases"))
    assert "AMOUNT_MISMATCH" in list_text
    assert "10.00 THB" in list_text
    assert "3 h" in list_text
    text = words(await visitor.get(f"/cases/{case_id}"))
    assert set(EXPLANATIONS) == set(CaseKind)
    assert EXPLANATIONS[CaseKind.AMOUNT_MISMATCH] in text
    assert "Expected 1,590.00 THB" in text
    assert "Received 10.00 THB" in text
    assert "No cases." in words(await visitor.get("/cases?status=DISMISSED"))
    assert "No open cases." in words(await visitor.get("/cases?kind=LATE_PAYMENT"))


@pytest.mark.parametrize(
    ("role", "resolutions"),
    [
        (Role.VIEWER, set[str]()),
        (Role.SUPPORT, {"accept", "dismiss"}),
        (Role.FINANCE, {"accept", "dismiss", "refund"}),
    ],
)
async def test_a_case_offers_only_resolutions_that_the_role_allows(
    operator: Api, world: World, role: Role, resolutions: set[str]
) -> None:
    case_id = await open_case(world)
    visitor = await sign_in_as(operator, role=role)
    page = (await visitor.get(f"/cases/{case_id}")).body.decode()
    offered = {link.rpartition("=")[2] for link in _DECIDE.findall(page)}
    assert offered == resolutions
    answer = await visitor.post(
        "/operations/case/resolve",
        case_id=case_id,
        resolution="refund",
        note="it goes back",
        why="ticket 7",
        step="confirmed",
    )
    assert answer.status == (200 if "refund" in resolutions else 403)


async def test_a_case_dismissed_with_its_form_leaves_the_queue(operator: Api, world: World) -> None:
    case_id = await open_case(world)
    visitor = await sign_in_as(operator, role=Role.SUPPORT)
    page = (await visitor.get(f"/cases/{case_id}")).body.decode()
    [form] = [link for link in _DECIDE.findall(page) if link.endswith("dismiss")]
    form_page = await visitor.get(form.replace("&amp;", "&"))
    assert f'value="{case_id}"' in form_page.body.decode()
    answer = await visitor.post(
        "/operations/case/resolve",
        case_id=case_id,
        resolution="dismiss",
        note="",
        why="it went back by hand",
        step="confirmed",
    )
    assert answer.status == 200
    assert "No open cases." in words(await visitor.get("/cases"))
    assert "it went back by hand" in words(await visitor.get(f"/cases/{case_id}"))


async def test_an_operator_cannot_approve_their_own_refund(operator: Api, world: World) -> None:
    payment_id, refund, other_refund = await add_refunds_for_approval(world)
    await world.rows("ALTER TABLE refund DISABLE TRIGGER USER")
    await world.rows("UPDATE refund SET requested_by = 'ann' WHERE id = $1", refund)
    own_id, other_id = (ids.format_id(ids.REFUND, item) for item in (refund, other_refund))
    ann = await sign_in_as(operator, role=Role.FINANCE)
    viewer = await sign_in_as(operator, "eve", Role.VIEWER)
    list_text = words(await ann.get("/refunds?step=approval"))
    assert own_id in list_text
    assert other_id in list_text
    assert "90.00 THB" in list_text
    for visitor, refund_id, verbs in (
        (ann, own_id, {"reject"}),
        (ann, other_id, {"approve", "reject"}),
        (viewer, other_id, set[str]()),
    ):
        page = (await visitor.get(f"/refunds/{refund_id}")).body.decode()
        offered = {link.split("/")[3].partition("?")[0] for link in _DECIDE.findall(page)}
        assert offered == verbs
    assert "another operator must approve" in words(await ann.get(f"/refunds/{own_id}"))
    form = {"refund_id": own_id, "why": "ticket 8", "step": "confirmed"}
    assert (await ann.post("/operations/refund/approve", **form)).status == 409
    paid_id = ids.format_id(ids.PAYMENT, payment_id)
    assert other_id in words(await viewer.get(f"/refunds?payment_id={paid_id}"))


async def test_a_dispute_shows_its_response_deadline(operator: Api, world: World) -> None:
    payment = await world.create()
    session = (await world.select(payment)).session
    await world.report(payment, session.id, captured(1_000))
    [case] = await world.rows("SELECT id FROM money_case")
    await add_dispute(world, "dp_open", "open", case["id"])
    await add_dispute(world, "dp_won", "won", await _open_other_case(world))
    visitor = await sign_in_as(operator, role=Role.VIEWER)
    list_text = words(await visitor.get("/disputes"))
    assert "dp_open" in list_text
    assert "overdue" in list_text
    assert "10.00 THB" in list_text
    assert format_payment_id(payment) in list_text
    assert "dp_won" not in list_text
    assert "dp_won" in words(await visitor.get("/disputes?status=ALL"))


async def test_cases_and_disputes_show_their_order_and_can_be_filtered_by_order(
    operator: Api, world: World
) -> None:
    for order_id in ("A-1001", "A-1002"):
        payment = await world.create(metadata=f'{{"order_id": "{order_id}"}}')
        session = (await world.select(payment)).session
        await world.report(payment, session.id, captured(1_000, reference=order_id))
        await add_dispute(world, f"dp_{order_id}", "open", await newest_case(world))
    visitor = await sign_in_as(operator, role=Role.VIEWER)
    lists = ("/cases?", "/disputes?")
    filters = ("", "status=ALL&", "order=newest&")
    for path in (queue + fields for queue in lists for fields in filters):
        assert "A-1001" in words(await visitor.get(path)), path
        rows = words(await visitor.get(f"{path}order_id=A-1002"))
        assert format_payment_id(payment) in rows, path
        assert "A-1001" not in rows, path
        assert format_payment_id(payment) not in words(await visitor.get(f"{path}order_id=A-9")), (
            path
        )
        assert (await visitor.get(f"{path}order_id=%00")).status == 200, path


async def test_refunds_show_their_order_and_can_be_filtered_by_order(
    operator: Api, world: World
) -> None:
    _, refund, _ = await add_refunds_for_approval(world)
    refund_id = ids.format_id(ids.REFUND, refund)
    visitor = await sign_in_as(operator, role=Role.VIEWER)
    for path in ("/refunds?", "/refunds?step=approval&", "/refunds?step=approval&order=newest&"):
        rows = words(await visitor.get(f"{path}order_id=A-1"))
        assert re.search(rf"{refund_id} .* pay_\w+ Order A-1 ", rows), path
        assert refund_id not in words(await visitor.get(f"{path}order_id=A-2")), path
    assert "Order A-1 " in words(await visitor.get(f"/refunds/{refund_id}"))


async def add_dispute(world: World, reference: str, state: str, case_id: UUID) -> None:
    """Record a dispute of a case's money, with a deadline in the past."""
    await world.rows(
        """
        INSERT INTO dispute (id, account_id, reference, capture_id, case_id, state, funds,
            amount_minor, currency, held_minor, respond_by)
        SELECT $1, $2, $3, capture_id, id, $4, 'withdrawn', 1000, 'THB', 0,
            clock() - interval '1 h'
        FROM money_case
        WHERE id = $5
        """,
        world.id_generator.new_id(),
        world.account_id,
        reference,
        state,
        case_id,
    )


async def newest_case(world: World) -> UUID:
    [row] = await world.rows("SELECT id FROM money_case ORDER BY id DESC LIMIT 1")
    return row["id"]


async def _open_other_case(world: World) -> UUID:
    payment = await world.create()
    session = (await world.select(payment)).session
    await world.report(payment, session.id, captured(1_000, reference="other"))
    [row] = await world.rows("SELECT id FROM money_case WHERE payment_id = $1", payment.id)
    return row["id"]
