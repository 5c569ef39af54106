"""Test the documented outcome of each test card and each injected gateway fault."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.e2e.merchant import Merchant, key_of, move_clock
from tests.e2e.sandbox import Sandbox, command_line
from tests.support.timeouts import wait_until

CHAINS = False
WARM = True
pytestmark = [pytest.mark.e2e, pytest.mark.full]

COMPLETED, FAILED, EXPIRED = "payment.completed", "payment.failed", "payment.expired"


async def pay_with(merchant: Merchant, card: str, **changes: Any) -> dict[str, Any]:
    payment = await merchant.create(**changes)
    await merchant.pay(await merchant.select(payment), card)
    return payment


async def check_end(
    merchant: Merchant, payment: dict[str, Any], status: str, kind: str
) -> dict[str, Any]:
    """Check that the payment has this status, and that its only event was delivered."""
    await merchant.wait_for_webhook(payment, kind)
    assert await merchant.events(payment) == [kind]
    final = await merchant.get(payment)
    assert final["status"] == status
    return final


async def check_unchanged(
    merchant: Merchant, payment: dict[str, Any], final: dict[str, Any]
) -> None:
    """Check that the payment is unchanged, without further events or webhooks."""
    assert await merchant.get(payment) == final
    assert len(await merchant.events(payment)) == 1
    assert len({item.webhook_id for item in merchant.receiver.deliveries_for(payment)}) == 1


def test_the_no_chains_option_starts_a_sandbox_without_chains(sandbox: Sandbox) -> None:
    assert sandbox.dev_json["chains"] == {}
    assert "no dev chains" not in sandbox.output.read_text(), "the sandbox tried to start chains"
    assert not any("--chain-id" in command_line(pid) for pid in sandbox.processes())


async def test_an_approved_card_is_paid(merchant: Merchant) -> None:
    payment = await pay_with(merchant, "4242424242424242")
    final = await check_end(merchant, payment, "PAID", COMPLETED)
    assert final["receipt_id"].startswith("rcpt_")
    assert await merchant.cases(payment) == []


@pytest.mark.parametrize(
    ("card", "reason"),
    [
        ("4000000000000002", "DECLINED"),
        ("4000000000009995", "DECLINED"),
        ("4000000000000069", "DECLINED"),
        ("4000000000000127", "DECLINED"),
        ("4000000000000119", "UNKNOWN"),
    ],
)
async def test_a_declined_card_fails(merchant: Merchant, card: str, reason: str) -> None:
    payment = await pay_with(merchant, card)
    final = await check_end(merchant, payment, "FAILED", FAILED)
    assert final["failure_reason"] == reason
    assert await merchant.cases(payment) == []


@pytest.mark.parametrize(
    ("result", "status", "kind"), [("approve", "PAID", COMPLETED), ("fail", "FAILED", FAILED)]
)
async def test_the_challenge_result_decides_the_payment(
    merchant: Merchant, result: str, status: str, kind: str
) -> None:
    payment = await merchant.create()
    page = await merchant.select(payment)
    assert await merchant.pay(page, "4000002500003155") == page
    assert (await merchant.get(payment))["status"] == "PROCESSING"
    code, problem = await merchant.try_select(payment, 1)
    assert (code, problem["code"]) == (409, "INVALID_CHECKOUT_STATE")
    async with merchant.http.post(
        f"{page}/challenge", data={"result": result}, allow_redirects=False
    ) as answer:
        assert answer.status == 303
    await check_end(merchant, payment, status, kind)


async def test_a_late_callback_completes_the_payment(merchant: Merchant) -> None:
    payment = await pay_with(merchant, "4000009900000012")
    assert (await merchant.get(payment))["status"] == "PROCESSING"
    await check_end(merchant, payment, "PAID", COMPLETED)


async def test_a_late_callback_changes_nothing_if_the_payment_was_detected_on_return(
    merchant: Merchant,
) -> None:
    payment = await pay_with(merchant, "4000009900000012")
    await merchant.return_to_checkout(payment)
    final = await merchant.wait_for_status(payment, "PAID")
    await merchant.wait_for_callbacks(payment, 1)
    await check_unchanged(merchant, payment, final)
    await merchant.wait_for_webhook(payment, COMPLETED)


async def test_three_encodings_of_a_callback_pay_once(merchant: Merchant) -> None:
    payment = await pay_with(merchant, "4000009900000020")
    calls = await merchant.wait_for_callbacks(payment, 3)
    assert len({call["body"] for call in calls}) == 3
    await check_end(merchant, payment, "PAID", COMPLETED)
    assert await merchant.cases(payment) == []


async def test_a_payment_without_a_callback_is_detected_when_the_buyer_returns(
    merchant: Merchant,
) -> None:
    payment = await pay_with(merchant, "4000009900000046")
    await merchant.return_to_checkout(payment)
    await check_end(merchant, payment, "PAID", COMPLETED)
    assert await merchant.callbacks(payment) == []


async def test_an_inquiry_detects_a_payment_without_a_callback_or_return(
    merchant: Merchant,
) -> None:
    payment = await pay_with(merchant, "4000009900000046")
    await move_clock(merchant.database, 31)
    await check_end(merchant, payment, "PAID", COMPLETED)


async def test_a_capture_after_a_method_change_opens_a_case(merchant: Merchant) -> None:
    payment = await merchant.create()
    await merchant.pay(await merchant.select(payment, 0), "4000009900000053")
    await merchant.pay(await merchant.select(payment, 1))
    final = await check_end(merchant, payment, "PAID", COMPLETED)
    await merchant.wait_for_case(payment, "ORPHAN_CAPTURE")
    await check_unchanged(merchant, payment, final)


async def test_a_capture_after_expiry_opens_a_case(merchant: Merchant) -> None:
    payment = await pay_with(merchant, "4000009900000061", expires_in=2)
    final = await check_end(merchant, payment, "EXPIRED", EXPIRED)
    await merchant.wait_for_case(payment, "LATE_PAYMENT")
    await check_unchanged(merchant, payment, final)


@pytest.mark.parametrize("card", ["4000009900000079", "4000009900000087"])
async def test_a_wrong_amount_or_currency_fails_the_payment_and_opens_a_case(
    merchant: Merchant, card: str
) -> None:
    payment = await pay_with(merchant, card)
    final = await check_end(merchant, payment, "FAILED", FAILED)
    assert final["failure_reason"] == "AMOUNT_MISMATCH"
    assert await merchant.cases(payment) == ["AMOUNT_MISMATCH"]


async def test_a_callback_with_a_bad_signature_is_rejected_and_a_valid_callback_pays(
    merchant: Merchant,
) -> None:
    payment = await pay_with(merchant, "4000009900000095")
    calls = await merchant.wait_for_callbacks(payment, 1)
    assert [call["status"] for call in calls] == [401, 200]
    await check_end(merchant, payment, "PAID", COMPLETED)


async def test_a_failed_payment_stays_failed_if_a_capture_arrives_later(
    merchant: Merchant,
) -> None:
    payment = await pay_with(merchant, "4000009900000103")
    final = await check_end(merchant, payment, "FAILED", FAILED)
    await merchant.wait_for_case(payment, "LATE_PAYMENT")
    await check_unchanged(merchant, payment, final)


async def test_a_buyer_who_cancels_at_the_gateway_can_select_another_method(
    merchant: Merchant,
) -> None:
    payment = await merchant.create()
    page = await merchant.select(payment)
    async with merchant.http.post(f"{page}/cancel", allow_redirects=False) as answer:
        assert answer.status == 303
    await merchant.wait_for_callbacks(payment, 1)
    assert (await merchant.get(payment))["status"] == "PROCESSING"
    assert await merchant.events(payment) == []
    await merchant.pay(await merchant.select(payment, 1))
    await check_end(merchant, payment, "PAID", COMPLETED)


@pytest.fixture
async def rule(merchant: Merchant) -> AsyncIterator[Any]:
    """A function that injects a fault if a session's amount is 13.13."""

    async def set_fault(action: str | None) -> None:
        rules = [{"match": {"amount": "13.13"}, "action": action}] if action else []
        assert await merchant.simulator("PUT", "/_sim/rules", rules) == rules

    yield set_fault
    await set_fault(None)


async def check_selection_fails(merchant: Merchant, payment: dict[str, Any]) -> None:
    """Check that a selection fails and leaves the payment pending."""
    status, answer = await merchant.try_select(payment)
    assert (status, answer["code"]) == (502, "PG_UPSTREAM_ERROR")
    assert (await merchant.get(payment))["status"] == "PENDING"


async def test_a_payment_can_be_selected_again_after_a_gateway_failure(
    merchant: Merchant, rule: Any
) -> None:
    await rule("503x3")
    payment = await merchant.create(amount="13.13")
    for _ in range(3):
        await check_selection_fails(merchant, payment)
    await merchant.pay(await merchant.select(payment))
    await check_end(merchant, payment, "PAID", COMPLETED)


async def test_a_selection_waits_for_a_slow_gateway(merchant: Merchant, rule: Any) -> None:
    await rule("hang35s")
    payment = await merchant.create(amount="13.13")
    await merchant.pay(await merchant.select(payment))
    await check_end(merchant, payment, "PAID", COMPLETED)


async def test_a_session_with_an_unreadable_creation_response_is_closed_at_the_gateway(
    merchant: Merchant, rule: Any
) -> None:
    await rule("bad_json")
    payment = await merchant.create(amount="13.13")
    await check_selection_fails(merchant, payment)

    async def is_closed() -> bool:
        [row] = await merchant.rows(
            "SELECT life, outcome FROM session WHERE payment_id = $1", key_of(payment)
        )
        return tuple(row) == ("ended", "closed")

    await wait_until(is_closed, "the session is closed")
    await rule(None)
    await merchant.pay(await merchant.select(payment))
    await check_end(merchant, payment, "PAID", COMPLETED)


async def test_a_callback_before_the_session_creation_response_completes_the_payment(
    merchant: Merchant, rule: Any
) -> None:
    await rule("callback_before_response")
    payment = await merchant.create(amount="13.13")
    status, answer = await merchant.try_select(payment)
    assert (status, answer["checkout"]["status"]) == (200, "PAID")
    await check_end(merchant, payment, "PAID", COMPLETED)
    assert await merchant.cases(payment) == []


async def test_a_buyer_can_switch_methods_if_the_gateways_page_is_broken(
    merchant: Merchant, rule: Any
) -> None:
    await rule("hosted_500")
    payment = await merchant.create(amount="13.13")
    page = await merchant.select(payment)
    async with merchant.http.post(page, data={"card": "4242424242424242"}) as answer:
        assert answer.status == 500
    assert (await merchant.get(payment))["status"] == "PROCESSING"
    second_method = (await merchant.quotes(payment))[1]["payment_method_id"]
    page = await merchant.select(payment, 1)
    await rule(None)
    await merchant.pay(page)
    final = await check_end(merchant, payment, "PAID", COMPLETED)
    assert final["payment_method_id"] == second_method
