"""ECPay refunds: the action depends on the closing status, and is never repeated."""

import asyncio
from collections.abc import AsyncGenerator, Generator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import pytest

from payintent.gateways.ecpay import refunds
from payintent.gateways.ecpay.adapter import EcpayGateway
from payintent.gateways.http_client import GatewayHttpClient
from payintent.gateways.port import (
    Capture,
    GatewayRefundState,
    GatewaySessionRef,
    NotContacted,
    OutcomeUnknown,
    RefundReport,
)
from tests.gateways.ecpay_setup import (
    WHOLE,
    Script,
    Stage,
    account_at,
    open_stage,
    ref_of,
    refund_of,
    serve_script,
    trade_of,
)
from tests.sandbox.ecpay.emulator_setup import ACCOUNT, UNREFUNDABLE, running_ecpay, signed

DONE, DECLINED, ABSENT = (
    GatewayRefundState.DONE,
    GatewayRefundState.DECLINED,
    GatewayRefundState.ABSENT,
)
PART, DOLLAR = 59_000, 100
AUTHORISED, TO_BE_CLOSED, CLOSED = "已授權", "要關帳", "已關帳"
WITHDRAWN, CANCELLED = "操作取消", "已取消"
CAPTURE = Capture(reference="2611221100000001", amount_minor=WHOLE, currency="TWD")


@pytest.fixture(scope="module")
def url() -> Generator[str]:
    with running_ecpay() as url:
        yield url


@pytest.fixture
async def stage(url: str) -> AsyncGenerator[Stage]:
    async with open_stage(url) as stage:
        yield stage


async def perform_actions(
    stage: Stage, session: GatewaySessionRef, capture: Capture, *actions: str
) -> None:
    """Change a payment without the adapter, as a merchant does in ECPay's back office."""
    for action in actions:
        form = {
            "MerchantID": ACCOUNT.merchant_id,
            "MerchantTradeNo": str(session.reference),
            "TradeNo": capture.reference,
            "Action": action,
            "TotalAmount": "1590",
        }
        answer = await stage.buyer.call("/CreditDetail/DoAction", signed(form))
        assert "RtnCode=1&" in answer, answer


async def capture_in_phase(stage: Stage, phase: str) -> tuple[GatewaySessionRef, Capture]:
    session, capture = await stage.capture()
    if phase == CLOSED:
        await stage.buyer.call(f"/_ecpay/trades/{capture.reference}/close", {})
    else:
        steps = {AUTHORISED: "", TO_BE_CLOSED: "C", WITHDRAWN: "CE", CANCELLED: "N"}
        await perform_actions(stage, session, capture, *steps[phase])
    return session, capture


async def test_an_instalment_order_can_only_be_refunded_in_full(stage: Stage) -> None:
    session, capture = await stage.capture(card="4000009900000186")
    await stage.buyer.call(f"/_ecpay/trades/{capture.reference}/close", {})
    part = await stage.gateway.refund(stage.account, refund_of(session, capture, PART))
    assert isinstance(part, RefundReport)
    assert (part.state, "in full" in str(part.detail)) == (DECLINED, True)
    whole = await stage.gateway.refund(stage.account, refund_of(session, capture, WHOLE))
    assert isinstance(whole, RefundReport)
    assert whole.state is DONE


async def refunded_minor(stage: Stage, capture: Capture) -> int:
    return DOLLAR * (await stage.buyer.trade(capture.reference))["given_back"]


async def closing_status(stage: Stage, capture: Capture) -> str:
    return (await stage.buyer.trade(capture.reference))["closing"]


async def refund(
    stage: Stage, session: GatewaySessionRef | None, capture: Capture, amount_minor: int = WHOLE
) -> GatewayRefundState:
    report = await stage.gateway.refund(stage.account, refund_of(session, capture, amount_minor))
    assert isinstance(report, RefundReport), report
    return report.state


@pytest.mark.parametrize(
    ("phase", "final_phase"),
    [
        (AUTHORISED, CANCELLED),
        (TO_BE_CLOSED, CANCELLED),
        (WITHDRAWN, CANCELLED),
        (CLOSED, CLOSED),
    ],
)
async def test_a_full_refund_succeeds_in_every_closing_status(
    stage: Stage, phase: str, final_phase: str
) -> None:
    session, capture = await capture_in_phase(stage, phase)
    assert await refund(stage, session, capture) is DONE
    assert await refunded_minor(stage, capture) == WHOLE
    assert await closing_status(stage, capture) == final_phase
    assert await refund(stage, session, capture) is DECLINED


@pytest.mark.parametrize("phase", [AUTHORISED, TO_BE_CLOSED, WITHDRAWN, CLOSED])
async def test_partial_refunds_succeed_in_every_closing_status(stage: Stage, phase: str) -> None:
    session, capture = await capture_in_phase(stage, phase)
    assert await refund(stage, session, capture, PART) is DONE
    assert await refunded_minor(stage, capture) == PART
    assert await refund(stage, session, capture) is DECLINED
    assert await refund(stage, session, capture, WHOLE - PART) is DONE
    assert await refunded_minor(stage, capture) == WHOLE


async def test_a_payment_cancelled_in_the_back_office_is_not_refunded_again(stage: Stage) -> None:
    session, capture = await capture_in_phase(stage, CANCELLED)
    assert await refund(stage, session, capture) is DECLINED
    assert await refund(stage, session, capture, PART) is DECLINED


@pytest.mark.parametrize("changes", [{"session": None}, {"amount_minor": 50}])
async def test_a_refund_without_a_trade_or_in_fractional_dollars_is_declined(
    stage: Stage, changes: dict[str, Any]
) -> None:
    session, capture = await capture_in_phase(stage, CLOSED)
    request = replace(refund_of(session, capture), **changes)
    report = await stage.gateway.refund(stage.account, request)
    assert isinstance(report, RefundReport)
    assert report.state is DECLINED
    assert await refunded_minor(stage, capture) == 0


async def test_a_refund_of_another_trades_capture_is_declined(stage: Stage) -> None:
    session, _ = await capture_in_phase(stage, CLOSED)
    _, other_capture = await capture_in_phase(stage, CLOSED)
    assert await refund(stage, session, other_capture) is DECLINED
    assert await refunded_minor(stage, other_capture) == 0


async def test_a_refund_that_ecpay_refuses_is_declined_and_absent(stage: Stage) -> None:
    session, capture = await stage.capture(UNREFUNDABLE)
    request = refund_of(session, capture)
    report = await stage.gateway.refund(stage.account, request)
    assert isinstance(report, RefundReport)
    assert report.state is DECLINED
    assert "too low" in report.detail
    inquiry = await stage.gateway.inquire_refund(stage.account, request)
    assert inquiry == RefundReport(state=ABSENT)


async def test_a_refund_with_a_withdrawn_closing_is_undecided_until_someone_ends_the_payment(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ECPay would neither capture nor return the money, so the refund has not failed."""
    session, capture = await capture_in_phase(stage, TO_BE_CLOSED)
    request = refund_of(session, capture)
    sent, post = list[str](), refunds.EcpayApi.post

    async def lose_cancellation(self: Any, account: Any, path: str, fields: Any) -> Any:
        if fields.get("Action") == "N":
            sent.append("N")
            return OutcomeUnknown(detail="no response")
        return await post(self, account, path, fields)

    with monkeypatch.context() as patch:
        patch.setattr(refunds.EcpayApi, "post", lose_cancellation)
        assert isinstance(await stage.gateway.refund(stage.account, request), OutcomeUnknown)
    assert (sent, await closing_status(stage, capture)) == (["N"], WITHDRAWN)
    undecided = await stage.gateway.inquire_refund(stage.account, request)
    assert isinstance(undecided, OutcomeUnknown)
    assert undecided.has_responded
    await perform_actions(stage, session, capture, "C")
    assert await stage.gateway.inquire_refund(stage.account, request) == RefundReport(state=ABSENT)
    await perform_actions(stage, session, capture, "E", "N")
    assert await stage.gateway.inquire_refund(stage.account, request) == RefundReport(state=DONE)


async def test_a_cancellation_that_ecpay_refuses_after_the_withdrawal_is_undecided(
    stage: Stage,
) -> None:
    session, capture = await stage.capture(UNREFUNDABLE)
    await perform_actions(stage, session, capture, "C")
    answer = await stage.gateway.refund(stage.account, refund_of(session, capture))
    assert await closing_status(stage, capture) == WITHDRAWN
    assert isinstance(answer, OutcomeUnknown)
    assert answer.has_responded


async def test_without_a_check_code_closed_payments_are_refunded_and_inquiries_are_skipped(
    stage: Stage,
) -> None:
    stage.account = account_at(stage.buyer.url, credit_check_code="")
    session, capture = await capture_in_phase(stage, AUTHORISED)
    assert await refund(stage, session, capture) is DECLINED
    session, capture = await capture_in_phase(stage, CLOSED)
    assert await refund(stage, session, capture, PART) is DONE
    assert await refunded_minor(stage, capture) == PART
    report = await stage.gateway.inquire_refund(stage.account, refund_of(session, capture, PART))
    assert isinstance(report, OutcomeUnknown)
    assert report.is_skipped


@pytest.mark.parametrize(
    ("moment", "passes"),
    [("12:14:59", True), ("12:15:00", False), ("12:30:59", False), ("12:31:00", True)],
)
async def test_refunds_are_not_sent_while_ecpay_closes_the_day(
    stage: Stage, moment: str, passes: bool
) -> None:
    session, capture = await capture_in_phase(stage, CLOSED)
    at = datetime.fromisoformat(f"2026-11-22T{moment}+00:00").astimezone(UTC).timestamp()
    http = GatewayHttpClient(timeout_s=10, response_bytes_max=10_000)
    gateway = EcpayGateway(http, now=lambda: at)
    request = refund_of(session, capture, PART)
    closes = account_at(stage.buyer.url, credit_check_code="", auto_close="")
    answer = await gateway.refund(closes, request)
    assert isinstance(answer, RefundReport if passes else NotContacted)
    assert passes or answer == NotContacted(
        detail="ECPay is closing the day's trades", is_skipped=True
    )
    assert await refunded_minor(stage, capture) == (PART if passes else 0)
    never = account_at(stage.buyer.url, credit_check_code="")
    assert isinstance(await gateway.refund(never, request), RefundReport)
    await http.close()


async def test_a_refund_is_identified_by_the_total_refunded_amount(stage: Stage) -> None:
    session, capture = await capture_in_phase(stage, CLOSED)

    async def inquire_state(
        amount_minor: int, reference: str | None = None
    ) -> GatewayRefundState | None:
        request = refund_of(session, capture, amount_minor, reference=reference)
        report = await stage.gateway.inquire_refund(stage.account, request)
        return report.state if isinstance(report, RefundReport) else None

    assert await inquire_state(WHOLE) is ABSENT
    first = await stage.gateway.refund(stage.account, refund_of(session, capture, PART))
    assert isinstance(first, RefundReport)
    assert await inquire_state(PART, first.reference) is DONE
    assert await inquire_state(PART) is None  # ambiguous: an earlier refund has the same amount
    assert await inquire_state(PART + DOLLAR) is ABSENT
    assert await refund(stage, session, capture, WHOLE - PART) is DONE
    assert await inquire_state(WHOLE - PART) is DONE
    assert await inquire_state(PART) is DONE


def detail(status: str, *rows: tuple[str, int], clsamt: int = 0, **changes: Any) -> Any:
    credit = {
        "TradeID": 10000001,
        "amount": 1590,
        "clsamt": clsamt,
        "authtime": "2026/11/22 11:00:00",
        "status": status,
        "close_data": [
            {"status": row_status, "amount": str(amount), "sno": "1"} for row_status, amount in rows
        ],
    }
    return {"RtnMsg": "", "RtnValue": credit | changes}


ACTED = {"MerchantID": ACCOUNT.merchant_id, "TradeNo": CAPTURE.reference, "RtnMsg": ""}


async def request_refund(
    stage: Stage, details: Any, amount_minor: int = WHOLE
) -> tuple[str, RefundReport | OutcomeUnknown]:
    """Request a refund from a fake ECPay; return the actions that it received."""
    session = ref_of(stage.request())
    response = {**ACTED, "MerchantTradeNo": str(session.reference), "RtnCode": "1"}
    actions: list[dict[str, str]] = []
    script = Script(trade_of(session), details, urlencode(response).encode(), actions=actions)
    async with serve_script(script) as account:
        answer = await stage.gateway.refund(account, refund_of(session, CAPTURE, amount_minor))
    return "".join(item["Action"] for item in actions), answer


@pytest.mark.parametrize(
    ("details", "whole", "part"),
    [
        (detail("Authorized"), "N", "CR"),
        (detail("已授權", close_data=None), "N", "CR"),
        (detail("To be captured", ("To be captured", 1590)), "EN", "R"),
        (detail("Captured", ("Captured", 1590), clsamt=1590), "R", "R"),
        # The overall status is about the last action, so the closing status decides.
        (detail("已關帳", ("要關帳", 1590)), "EN", "R"),
        (detail("已關帳", ("操作取消", 1590)), "N", "CR"),
        (detail("Operation canceled", ("Operation canceled", 1590)), "N", "CR"),
    ],
)
async def test_every_closing_status_maps_to_its_refund_actions(
    stage: Stage, details: Any, whole: str, part: str
) -> None:
    assert (await request_refund(stage, details))[0] == whole
    assert (await request_refund(stage, details, PART))[0] == part


@pytest.mark.parametrize(
    "details",
    [
        detail("未授權"),
        detail("?"),
        detail("已關帳", amount=1591),
        {"RtnMsg": "error", "RtnValue": None},
        {"RtnMsg": "error_nopay", "RtnValue": detail("已關帳")["RtnValue"]},
        {"RtnMsg": "", "RtnValue": None},
        [],
        None,
    ],
)
async def test_no_action_is_sent_if_the_trade_details_cannot_be_interpreted(
    stage: Stage, details: Any
) -> None:
    actions, answer = await request_refund(stage, details)
    assert actions == ""
    assert isinstance(answer, NotContacted)


@pytest.mark.parametrize(
    "details",
    [
        detail("已關帳", ("已關帳", 1590), ("已關帳", -1000), clsamt=1590),
        detail("已關帳", ("已關帳", 1590), ("要關帳", -1000), clsamt=1590),
        detail("已關帳", ("已關帳", 1590), clsamt=590),
    ],
)
async def test_earlier_refunds_are_counted_in_every_format_of_the_trade_details(
    stage: Stage, details: Any
) -> None:
    actions, answer = await request_refund(stage, details, 60_000)
    assert (actions, isinstance(answer, RefundReport)) == ("", True)
    actions, answer = await request_refund(stage, details, 59_000)
    assert actions == "R"


async def test_a_withdrawn_refund_is_not_counted(stage: Stage) -> None:
    details = detail("已關帳", ("已關帳", 1590), ("操作取消", -1000), clsamt=1590)
    assert (await request_refund(stage, details, 60_000))[0] == "R"


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"RtnCode": "1"}, 500),
        ({"RtnCode": "1"}, 403),
        ({"RtnCode": ""}, 200),
        ({"RtnCode": "1", "TradeNo": "another"}, 200),
        ({"RtnCode": "1", "MerchantTradeNo": "another"}, 200),
        ({"RtnCode": "10200041", "TradeNo": "another"}, 200),
    ],
)
@pytest.mark.parametrize(
    ("details", "outcome"),
    [
        (detail("已授權"), OutcomeUnknown),  # the cancellation, which refunds the payment
        (detail("要關帳", ("要關帳", 1590)), NotContacted),  # the withdrawal before it
    ],
)
async def test_an_action_without_a_clear_response_is_unknown_if_it_may_have_moved_money(
    stage: Stage, changes: dict[str, str], status: int, details: Any, outcome: type[OutcomeUnknown]
) -> None:
    session = ref_of(stage.request())
    form = ACTED | {"MerchantTradeNo": str(session.reference)} | changes
    actions: list[dict[str, str]] = []
    script = Script(trade_of(session), details, urlencode(form).encode(), status, actions)
    async with serve_script(script) as account:
        answer = await stage.gateway.refund(account, refund_of(session, CAPTURE))
    assert type(answer) is outcome
    assert len(actions) == 1


@pytest.mark.parametrize("changes", [{"TradeStatus": "0"}, {"TradeNo": "another"}])
async def test_a_refund_of_an_unknown_payment_is_declined_and_its_inquiry_is_unknown(
    stage: Stage, changes: dict[str, str]
) -> None:
    session = ref_of(stage.request())
    actions: list[dict[str, str]] = []
    async with serve_script(Script(trade_of(session, **changes), actions=actions)) as account:
        answer = await stage.gateway.refund(account, refund_of(session, CAPTURE))
        report = await stage.gateway.inquire_refund(account, refund_of(session, CAPTURE))
    assert isinstance(answer, RefundReport)
    assert answer.state is DECLINED
    assert isinstance(report, OutcomeUnknown)
    assert actions == []


async def test_a_refund_is_not_sent_if_the_queries_before_it_time_out(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refunds, "QUERIES_TIMEOUT_S", 0.1)
    session = ref_of(stage.request())
    released = asyncio.Event()
    script = Script(trade_of(session), actions=[], hold=released)
    async with serve_script(script) as account:
        answer = await stage.gateway.refund(account, refund_of(session, CAPTURE))
        report = await stage.gateway.inquire_refund(account, refund_of(session, CAPTURE))
        released.set()
    assert isinstance(answer, NotContacted)
    assert type(report) is OutcomeUnknown
    assert script.actions == []
