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
from tests.gateways.ecpay_stage import (
    WHOLE,
    Script,
    Stage,
    account_at,
    ref_of,
    refund_of,
    scripted,
    staged,
    trade_of,
)
from tests.sandbox.ecpay.running import ACCOUNT, UNREFUNDABLE, running_ecpay, signed

DONE, DECLINED, ABSENT = (
    GatewayRefundState.DONE,
    GatewayRefundState.DECLINED,
    GatewayRefundState.ABSENT,
)
PART, DOLLAR = 59_000, 100
AUTHORISED, TO_BE_CLOSED, CLOSED = "已授權", "要關帳", "已關帳"
WITHDRAWN, CANCELLED = "操作取消", "已取消"
HELD = Capture(reference="2611221100000001", amount_minor=WHOLE, currency="TWD")


@pytest.fixture(scope="module")
def url() -> Generator[str]:
    with running_ecpay() as url:
        yield url


@pytest.fixture
async def stage(url: str) -> AsyncGenerator[Stage]:
    async with staged(url) as stage:
        yield stage


async def act(stage: Stage, session: GatewaySessionRef, capture: Capture, *actions: str) -> None:
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


async def brought_to(stage: Stage, phase: str) -> tuple[GatewaySessionRef, Capture]:
    session, capture = await stage.captured()
    if phase == CLOSED:
        await stage.buyer.call(f"/_ecpay/trades/{capture.reference}/close", {})
    else:
        steps = {AUTHORISED: "", TO_BE_CLOSED: "C", WITHDRAWN: "CE", CANCELLED: "N"}
        await act(stage, session, capture, *steps[phase])
    return session, capture


async def test_an_instalment_order_can_only_be_refunded_in_full(stage: Stage) -> None:
    session, capture = await stage.captured(card="4000009900000186")
    await stage.buyer.call(f"/_ecpay/trades/{capture.reference}/close", {})
    part = await stage.gateway.refund(stage.account, refund_of(session, capture, PART))
    assert isinstance(part, RefundReport)
    assert (part.state, "in full" in str(part.detail)) == (DECLINED, True)
    whole = await stage.gateway.refund(stage.account, refund_of(session, capture, WHOLE))
    assert isinstance(whole, RefundReport)
    assert whole.state is DONE


async def given_back(stage: Stage, capture: Capture) -> int:
    return DOLLAR * (await stage.buyer.trade(capture.reference))["given_back"]


async def closing(stage: Stage, capture: Capture) -> str:
    return (await stage.buyer.trade(capture.reference))["closing"]


async def refunded(
    stage: Stage, session: GatewaySessionRef | None, capture: Capture, amount_minor: int = WHOLE
) -> GatewayRefundState:
    report = await stage.gateway.refund(stage.account, refund_of(session, capture, amount_minor))
    assert isinstance(report, RefundReport), report
    return report.state


@pytest.mark.parametrize(
    ("phase", "then"),
    [
        (AUTHORISED, CANCELLED),
        (TO_BE_CLOSED, CANCELLED),
        (WITHDRAWN, CANCELLED),
        (CLOSED, CLOSED),
    ],
)
async def test_a_full_refund_succeeds_in_every_closing_status(
    stage: Stage, phase: str, then: str
) -> None:
    session, capture = await brought_to(stage, phase)
    assert await refunded(stage, session, capture) is DONE
    assert await given_back(stage, capture) == WHOLE
    assert await closing(stage, capture) == then
    assert await refunded(stage, session, capture) is DECLINED


@pytest.mark.parametrize("phase", [AUTHORISED, TO_BE_CLOSED, WITHDRAWN, CLOSED])
async def test_partial_refunds_succeed_in_every_closing_status(stage: Stage, phase: str) -> None:
    session, capture = await brought_to(stage, phase)
    assert await refunded(stage, session, capture, PART) is DONE
    assert await given_back(stage, capture) == PART
    assert await refunded(stage, session, capture) is DECLINED
    assert await refunded(stage, session, capture, WHOLE - PART) is DONE
    assert await given_back(stage, capture) == WHOLE


async def test_a_payment_cancelled_in_the_back_office_is_not_refunded_again(stage: Stage) -> None:
    session, capture = await brought_to(stage, CANCELLED)
    assert await refunded(stage, session, capture) is DECLINED
    assert await refunded(stage, session, capture, PART) is DECLINED


@pytest.mark.parametrize("changes", [{"session": None}, {"amount_minor": 50}])
async def test_a_refund_without_a_trade_or_in_fractional_dollars_is_declined(
    stage: Stage, changes: dict[str, Any]
) -> None:
    session, capture = await brought_to(stage, CLOSED)
    request = replace(refund_of(session, capture), **changes)
    report = await stage.gateway.refund(stage.account, request)
    assert isinstance(report, RefundReport)
    assert report.state is DECLINED
    assert await given_back(stage, capture) == 0


async def test_a_refund_of_a_capture_of_another_trade_is_declined(stage: Stage) -> None:
    session, _ = await brought_to(stage, CLOSED)
    _, other = await brought_to(stage, CLOSED)
    assert await refunded(stage, session, other) is DECLINED
    assert await given_back(stage, other) == 0


async def test_a_refund_that_ecpay_refuses_is_declined_and_absent(stage: Stage) -> None:
    session, capture = await stage.captured(UNREFUNDABLE)
    request = refund_of(session, capture)
    report = await stage.gateway.refund(stage.account, request)
    assert isinstance(report, RefundReport)
    assert report.state is DECLINED
    assert "too low" in report.detail
    stands = await stage.gateway.inquire_refund(stage.account, request)
    assert stands == RefundReport(state=ABSENT)


async def test_without_a_check_code_closed_payments_are_refunded_and_inquiries_skipped(
    stage: Stage,
) -> None:
    stage.account = account_at(stage.buyer.url, credit_check_code="")
    session, capture = await brought_to(stage, AUTHORISED)
    assert await refunded(stage, session, capture) is DECLINED
    session, capture = await brought_to(stage, CLOSED)
    assert await refunded(stage, session, capture, PART) is DONE
    assert await given_back(stage, capture) == PART
    asked = await stage.gateway.inquire_refund(stage.account, refund_of(session, capture, PART))
    assert isinstance(asked, OutcomeUnknown)
    assert asked.is_skipped


@pytest.mark.parametrize(
    ("moment", "passes"),
    [("12:14:59", True), ("12:15:00", False), ("12:30:59", False), ("12:31:00", True)],
)
async def test_refunds_are_not_sent_while_ecpay_closes_the_day(
    stage: Stage, moment: str, passes: bool
) -> None:
    session, capture = await brought_to(stage, CLOSED)
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
    assert await given_back(stage, capture) == (PART if passes else 0)
    never = account_at(stage.buyer.url, credit_check_code="")
    assert isinstance(await gateway.refund(never, request), RefundReport)
    await http.close()


async def test_a_refund_is_identified_by_the_total_refunded_amount(stage: Stage) -> None:
    session, capture = await brought_to(stage, CLOSED)

    async def stands(amount_minor: int, reference: str | None = None) -> GatewayRefundState | None:
        request = refund_of(session, capture, amount_minor, reference=reference)
        report = await stage.gateway.inquire_refund(stage.account, request)
        return report.state if isinstance(report, RefundReport) else None

    assert await stands(WHOLE) is ABSENT
    first = await stage.gateway.refund(stage.account, refund_of(session, capture, PART))
    assert isinstance(first, RefundReport)
    assert await stands(PART, first.reference) is DONE
    assert await stands(PART) is None  # ambiguous: an earlier refund has the same amount
    assert await stands(PART + DOLLAR) is ABSENT
    assert await refunded(stage, session, capture, WHOLE - PART) is DONE
    assert await stands(WHOLE - PART) is DONE
    assert await stands(PART) is DONE


def detail(status: str, *rows: tuple[str, int], clsamt: int = 0, **changes: Any) -> Any:
    credit = {
        "TradeID": 10000001,
        "amount": 1590,
        "clsamt": clsamt,
        "authtime": "2026/11/22 11:00:00",
        "status": status,
        "close_data": [{"status": one, "amount": str(many), "sno": "1"} for one, many in rows],
    }
    return {"RtnMsg": "", "RtnValue": credit | changes}


ACTED = {"MerchantID": ACCOUNT.merchant_id, "TradeNo": HELD.reference, "RtnMsg": ""}


async def asked_of(
    stage: Stage, said: Any, amount_minor: int = WHOLE
) -> tuple[str, RefundReport | OutcomeUnknown]:
    """Request a refund from a fake ECPay; return the actions that it received."""
    session = ref_of(stage.request())
    done = {**ACTED, "MerchantTradeNo": str(session.reference), "RtnCode": "1"}
    acts: list[dict[str, str]] = []
    script = Script(trade_of(session), said, urlencode(done).encode(), acts=acts)
    async with scripted(script) as account:
        answer = await stage.gateway.refund(account, refund_of(session, HELD, amount_minor))
    return "".join(item["Action"] for item in acts), answer


@pytest.mark.parametrize(
    ("said", "whole", "part"),
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
    stage: Stage, said: Any, whole: str, part: str
) -> None:
    assert (await asked_of(stage, said))[0] == whole
    assert (await asked_of(stage, said, PART))[0] == part


@pytest.mark.parametrize(
    "said",
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
    stage: Stage, said: Any
) -> None:
    actions, answer = await asked_of(stage, said)
    assert actions == ""
    assert isinstance(answer, NotContacted)


@pytest.mark.parametrize(
    "said",
    [
        detail("已關帳", ("已關帳", 1590), ("已關帳", -1000), clsamt=1590),
        detail("已關帳", ("已關帳", 1590), ("要關帳", -1000), clsamt=1590),
        detail("已關帳", ("已關帳", 1590), clsamt=590),
    ],
)
async def test_earlier_refunds_are_counted_in_every_format_of_the_trade_details(
    stage: Stage, said: Any
) -> None:
    actions, answer = await asked_of(stage, said, 60_000)
    assert (actions, isinstance(answer, RefundReport)) == ("", True)
    actions, answer = await asked_of(stage, said, 59_000)
    assert actions == "R"


async def test_a_withdrawn_refund_is_not_counted(stage: Stage) -> None:
    said = detail("已關帳", ("已關帳", 1590), ("操作取消", -1000), clsamt=1590)
    assert (await asked_of(stage, said, 60_000))[0] == "R"


@pytest.mark.parametrize(
    ("acted", "status"),
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
    ("said", "outcome"),
    [
        (detail("已授權"), OutcomeUnknown),  # the cancellation, which refunds the payment
        (detail("要關帳", ("要關帳", 1590)), NotContacted),  # the withdrawal before it
    ],
)
async def test_an_action_without_a_clear_response_is_unknown_if_it_may_have_refunded(
    stage: Stage, acted: dict[str, str], status: int, said: Any, outcome: type[OutcomeUnknown]
) -> None:
    session = ref_of(stage.request())
    form = ACTED | {"MerchantTradeNo": str(session.reference)} | acted
    acts: list[dict[str, str]] = []
    script = Script(trade_of(session), said, urlencode(form).encode(), status, acts)
    async with scripted(script) as account:
        answer = await stage.gateway.refund(account, refund_of(session, HELD))
    assert type(answer) is outcome
    assert len(acts) == 1


@pytest.mark.parametrize("changes", [{"TradeStatus": "0"}, {"TradeNo": "another"}])
async def test_a_refund_of_an_unknown_payment_is_declined_and_its_inquiry_unknown(
    stage: Stage, changes: dict[str, str]
) -> None:
    session = ref_of(stage.request())
    acts: list[dict[str, str]] = []
    async with scripted(Script(trade_of(session, **changes), acts=acts)) as account:
        answer = await stage.gateway.refund(account, refund_of(session, HELD))
        asked = await stage.gateway.inquire_refund(account, refund_of(session, HELD))
    assert isinstance(answer, RefundReport)
    assert answer.state is DECLINED
    assert isinstance(asked, OutcomeUnknown)
    assert acts == []


async def test_a_refund_is_not_sent_if_the_queries_before_it_time_out(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refunds, "QUERIES_TIMEOUT_S", 0.1)
    session = ref_of(stage.request())
    held = asyncio.Event()
    script = Script(trade_of(session), acts=[], hold=held)
    async with scripted(script) as account:
        answer = await stage.gateway.refund(account, refund_of(session, HELD))
        asked = await stage.gateway.inquire_refund(account, refund_of(session, HELD))
        held.set()
    assert isinstance(answer, NotContacted)
    assert type(asked) is OutcomeUnknown
    assert script.acts == []
