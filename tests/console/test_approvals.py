"""Approvals in the console: the queue, decisions, reasons and roles."""

import html
import re

import pytest

from payintent.approvals.operations import Approve, ListApprovals, ShowApproval
from payintent.console.lists import PAGE_ROWS
from payintent.core import ids
from payintent.core.access import Role
from payintent.gateways.port import GatewayRefundState, RefundReport
from payintent.operators.operation import Actor
from payintent.refunds.approval_operations import ApproveRefund
from payintent.refunds.settle import settle_refund
from payintent.service import Service
from tests.console.operator_browser import Visitor, sign_in_as, words
from tests.support.operation_examples import Stage
from tests.support.world import Answer, Api

#: Copies of the proposal, each a minute older than the previous copy.
_MANY = """
    INSERT INTO proposal
    SELECT (jsonb_populate_record(p, jsonb_build_object('id', lpad(to_hex(231 - n), 32, '0'),
        'proposed_at', p.proposed_at - n * interval '1 minute'))).*
    FROM proposal p, generate_series(1, 230) n
    WHERE p.why = 'Grace begins on Monday'
"""
_COUNT = """
    SELECT (SELECT count(*) FROM proposal WHERE status = 'WAITING' OR $1)
        + (SELECT count(*) FROM refund WHERE step = 'approval') AS many
"""
_LISTED = re.compile(r'href="(/approvals/(?:appr|ref)_\w+)["?]')
_AGE = re.compile(r'<time datetime="([^"]+)">\d+ (?:s|min|h|d)</time>')
WHY = "Grace begins on Monday"


@pytest.fixture
def operated(production: Service) -> Service:
    return production


@pytest.fixture
async def ada(operator: Api, stage: Stage) -> Visitor:
    visitor = Visitor(operator)
    await visitor.sign_in(stage.tokens["Ada"])
    return visitor


@pytest.fixture
async def alan(operator: Api, stage: Stage) -> Visitor:
    visitor = Visitor(operator)
    await visitor.sign_in(stage.tokens["Alan"])
    return visitor


async def propose(visitor: Visitor) -> str:
    """Propose Grace as an operator; return the path of the approval."""
    form = {"name": "Grace", "role": "viewer", "days": "30", "why": WHY}
    answer = await visitor.post("/operations/operator/issue", **form)
    assert answer.status == 202, words(answer)
    assert "needs approval" in words(answer)
    return find_approval_link(answer)


def find_approval_link(answer: Answer) -> str:
    match = re.search(r'href="(/approvals/appr_\w+)"', answer.body.decode())
    assert match is not None
    return match[1]


async def test_a_pending_approval_is_described_and_shows_its_age(
    operator: Api, ada: Visitor, alan: Visitor
) -> None:
    page = await propose(ada)
    await operator.world.move_clock(3 * 3600)
    list_text = words(await alan.get("/approvals"))
    assert "Issue operator token" in list_text
    assert "'Grace' becomes an operator with the viewer role for 30 days" in list_text
    assert f"Ada {WHY} 3 h" in list_text
    assert page in (await alan.get("/approvals")).body.decode()
    page_text = words(await alan.get(page))
    assert f"Requester’s reason {WHY}" in page_text
    assert "3 h ago" in page_text


async def test_the_queue_starts_with_the_oldest_approval(
    operator: Api, ada: Visitor, alan: Visitor
) -> None:
    first = await propose(ada)
    await operator.world.move_clock(3600)
    second = await propose(ada)
    await operator.world.move_clock(4 * 3600)
    for query, pages in (("", [first, second]), ("?status=ALL", [second, first])):
        page = (await alan.get(f"/approvals{query}")).body.decode()
        assert [item for item in re.findall(r"/approvals/appr_\w+", page) if item in pages] == pages
    text = words(await alan.get("/approvals"))
    assert text.index(" 4 h ") < text.index(" 3 h ")


async def test_a_queue_longer_than_a_page_shows_the_oldest_approvals(
    operator: Api, ada: Visitor, alan: Visitor
) -> None:
    page = await propose(ada)
    await operator.world.rows(_MANY)
    paths = _LISTED.findall(await read_body(alan, "/approvals"))
    assert page not in paths  # the original is the newest
    ages = re.findall(_AGE, await read_body(alan, "/approvals"))
    assert len(ages) == PAGE_ROWS
    assert ages == sorted(ages)
    [oldest] = await operator.world.rows("SELECT min(proposed_at) AS at FROM proposal")
    assert ages[0].startswith(oldest["at"].isoformat()[:19])


@pytest.mark.parametrize("query", ["", "?status=ALL"])
async def test_a_paginated_queue_lists_each_approval_once(
    operator: Api, ada: Visitor, alan: Visitor, stage: Stage, query: str
) -> None:
    pages = {await propose(ada), f"/approvals/{stage.known['refund']}"}
    await operator.world.rows(_MANY)
    [row] = await operator.world.rows(_COUNT, bool(query))
    paths: list[str] = []
    sizes: list[int] = []
    path = f"/approvals{query}"
    while path:
        body = await read_body(alan, path)
        page_paths = _LISTED.findall(body)
        paths += page_paths
        sizes.append(len(page_paths))
        next_link = re.search(r'href="([^"]+)" rel="next"', body)
        path = html.unescape(next_link[1]) if next_link else ""
    assert len(paths) == len(set(paths)) == row["many"]
    assert pages <= set(paths)
    assert set(sizes[:-1]) == {PAGE_ROWS}
    ids = [item.rpartition("_")[2] for item in paths]
    assert ids == sorted(ids, reverse=bool(query))


async def read_body(visitor: Visitor, path: str) -> str:
    return (await visitor.get(path)).body.decode()


async def test_an_approver_sees_the_result_of_the_operation_once(
    ada: Visitor, alan: Visitor, stage: Stage
) -> None:
    page = await propose(ada)
    answer = await alan.post(f"{page}/approve", note="as planned")
    text = words(answer)
    assert answer.status == 200, text
    assert "shown only once" in text
    token = re.search(r"op_\w+", text)
    assert token is not None
    assert (await Visitor(ada.api).sign_in(token[0])).status == 303
    second_view = await alan.get(page)
    assert "Approved by Alan" in words(second_view)
    assert token[0] not in second_view.body.decode()
    [*_, row] = await stage.world.rows(
        "SELECT who, why FROM audit WHERE action = 'approval.approve' ORDER BY id"
    )
    assert (row["who"], row["why"]) == ("Alan", "as planned")


async def test_both_reasons_are_shown_in_the_console_and_at_the_terminal(
    ada: Visitor, alan: Visitor, stage: Stage
) -> None:
    page = await propose(ada)
    approval_id = page.rpartition("/")[2]
    await stage.perform(Approve(approval_id=approval_id), Actor("Alan", "as planned", Role.ADMIN))
    text = words(await alan.get(page))
    assert f"Requester’s reason {WHY}" in text
    assert "Approver’s reason as planned" in text
    list_text = words(await alan.get("/approvals?status=APPROVED"))
    assert f"Ada {WHY}" in list_text
    assert "Alan as planned" in list_text
    approval = await stage.perform(ShowApproval(approval_id=approval_id))
    assert (approval.why, approval.note) == (WHY, "as planned")
    assert {"why", "note"} <= set(ListApprovals.columns)


async def test_the_approval_of_a_refund_shows_both_reasons(alan: Visitor, stage: Stage) -> None:
    refund = str(stage.known["refund"])
    await stage.perform(ApproveRefund(refund_id=refund), Actor("Alan", "by letter", Role.FINANCE))
    text = words(await alan.get(f"/approvals/{refund}"))
    assert "Requester’s reason" in text
    assert "Approved by Alan Approver’s reason by letter" in text
    report = RefundReport(state=GatewayRefundState.DECLINED, detail="the card is closed")
    refund_id = ids.parse_id(ids.REFUND, refund)
    assert refund_id is not None
    async with stage.world.database.transaction() as tx:
        await settle_refund(tx, refund_id, report)
    text = words(await alan.get(f"/approvals/{refund}"))
    assert "Approver’s reason by letter; the card is closed" in text


async def test_a_requester_can_withdraw_a_proposal_but_not_approve_it(ada: Visitor) -> None:
    page = await propose(ada)
    body = (await ada.get(page)).body.decode()
    assert "Withdraw" in body
    assert f"{page}/approve" not in body
    response = await ada.post(f"{page}/approve", note="I am sure")
    assert response.status == 409
    assert "an operator other than 'Ada'" in words(response)
    assert 'value="I am sure"' in response.body.decode()
    assert (await ada.post(f"{page}/reject", note="a mistake")).status == 200
    assert "Reason for the rejection a mistake" in words(await ada.get(page))
    assert "REJECTED" in words(await ada.get(page))


async def test_a_decision_needs_a_reason(ada: Visitor, alan: Visitor) -> None:
    page = await propose(ada)
    for decision in ("approve", "reject"):
        assert (await alan.post(f"{page}/{decision}", note=" ")).status == 400
    assert "WAITING" in words(await alan.get(page))


async def test_a_lower_role_sees_an_approval_but_cannot_decide(
    operator: Api, ada: Visitor, stage: Stage
) -> None:
    page = await propose(ada)
    viewer = await sign_in_as(operator, "vera", Role.VIEWER)
    response = await viewer.get(page)
    assert "Only operators with the admin role can decide" in words(response)
    assert "<button>Approve" not in response.body.decode()
    for decision in ("approve", "reject"):
        answer = await viewer.post(f"{page}/{decision}", note="all the same")
        assert answer.status == 403
    finance = await sign_in_as(operator, "fay", Role.FINANCE)
    answer = await finance.post(f"{page}/approve", note="all the same")
    assert "requires the admin role" in words(answer)
    assert "WAITING" in words(await ada.get(page))


async def test_an_unknown_approval_or_decision_is_not_found(ada: Visitor) -> None:
    page = await propose(ada)
    for path in ("/approvals/x", "/approvals/appr_0000000000000000000000"):
        assert (await ada.get(path)).status == 404
        assert (await ada.post(f"{path}/reject", note="x")).status == 404
    assert (await ada.post(f"{page}/burn", note="x")).status == 404
    assert (await ada.get("/approvals?status=LOST")).status == 400


async def test_a_refund_that_needs_approval_is_decided_in_the_same_queue(
    alan: Visitor, stage: Stage
) -> None:
    refund = str(stage.known["refund"])
    assert f"/approvals/{refund}" in (await alan.get("/approvals")).body.decode()
    answer = await alan.post(f"/approvals/{refund}/approve", note="by letter")
    assert answer.status == 200, words(answer)
    assert "APPROVED" in words(await alan.get(f"/approvals/{refund}"))
