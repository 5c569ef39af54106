"""Each test card and each injected gateway fault has the documented outcome."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.e2e.merchant import Merchant, key_of, move_clock
from tests.e2e.sandbox import Sandbox, command_line
from tests.support.patience import wait_until

CHAINS = False
WARM = True
pytestmark = [pytest.mark.e2e, pytest.mark.full]

COMPLETED, FAILED, EXPIRED = "payment.completed", "payment.failed", "payment.expired"


async def pay_with(merchant: Merchant, card: str, **changes: Any) -> dict[str, Any]:
    payment = await merchant.create(**changes)
    await merchant.pay(await merchant.select(payment), card)
    return payment


async def has_ended(
    merchant: Merchant, payment: dict[str, Any], status: str, kind: str
) -> dict[str, Any]:
    """The payment has this end, with a single event, which was delivered."""
    await merchant.told(payment, kind)
    assert await merchant.events(payment) == [kind]
    seen = await merchant.get(payment)
    assert seen["status"] == status
    return seen


async def stays(merchant: Merchant, payment: dict[str, Any], before: dict[str, Any]) -> None:
    """Later events have changed nothing, and sent nothing."""
    assert await merchant.get(payment) == before
    assert len(await merchant.events(payment)) == 1
    assert len({item.webhook_id for item in merchant.receiver.of(payment)}) == 1


def test_a_sandbox_that_was_asked_for_no_chains_runs_none(sandbox: Sandbox) -> None:
    assert sandbox.told["chains"] == {}
    assert "no dev chains" not in sandbox.output.read_text(), "nothing has failed"
    assert not any("--chain-id" in command_line(pid) for pid in sandbox.processes())


async def test_an_approved_card_is_paid(merchant: Merchant) -> None:
    payment = await pay_with(merchant, "4242424242424242")
    seen = await has_ended(merchant, payment, "PAID", COMPLETED)
    assert seen["receipt_id"].startswith("rcpt_")
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
    seen = await has_ended(merchant, payment, "FAILED", FAILED)
    assert seen["failure_reason"] == reason
    assert await merchant.cases(payment) == []


@pytest.mark.parametrize(
    ("result", "status", "kind"), [("approve", "PAID", COMPLETED), ("fail", "FAILED", FAILED)]
)
async def test_a_challenge_decides(merchant: Merchant, result: str, status: str, kind: str) -> None:
    payment = await merchant.create()
    page = await merchant.select(payment)
    assert await merchant.pay(page, "4000002500003155") == page
    assert (await merchant.get(payment))["status"] == "PROCESSING"
    code, refused = await merchant.try_select(payment, 1)
    assert (code, refused["code"]) == (409, "INVALID_CHECKOUT_STATE")
    async with merchant.http.post(
        f"{page}/challenge", data={"result": result}, allow_redirects=False
    ) as answer:
        assert answer.status == 303
    await has_ended(merchant, payment, status, kind)


async def test_a_late_callback_is_waited_for(merchant: Merchant) -> None:
    payment = await pay_with(merchant, "4000009900000012")
    assert (await merchant.get(payment))["status"] == "PROCESSING"
    await has_ended(merchant, payment, "PAID", COMPLETED)


async def test_a_buyer_who_returns_is_faster_than_a_late_callback_which_then_changes_nothing(
    merchant: Merchant,
) -> None:
    payment = await pay_with(merchant, "4000009900000012")
    await merchant.come_back(payment)
    before = await merchant.ends(payment, "PAID")
    await merchant.called_back(payment, 1)
    await stays(merchant, payment, before)
    await merchant.told(payment, COMPLETED)


async def test_three_wordings_of_one_callback_pay_once(merchant: Merchant) -> None:
    payment = await pay_with(merchant, "4000009900000020")
    calls = await merchant.called_back(payment, 3)
    assert len({call["body"] for call in calls}) == 3
    await has_ended(merchant, payment, "PAID", COMPLETED)
    assert await merchant.cases(payment) == []


async def test_without_a_callback_the_buyers_return_finds_the_money(merchant: Merchant) -> None:
    payment = await pay_with(merchant, "4000009900000046")
    await merchant.come_back(payment)
    await has_ended(merchant, payment, "PAID", COMPLETED)
    assert await merchant.callbacks(payment) == []


async def test_without_callback_and_return_the_janitor_finds_the_money(merchant: Merchant) -> None:
    payment = await pay_with(merchant, "4000009900000046")
    await move_clock(merchant.database, 31)
    await has_ended(merchant, payment, "PAID", COMPLETED)


async def test_money_after_a_change_of_method_is_a_case(merchant: Merchant) -> None:
    payment = await merchant.create()
    await merchant.pay(await merchant.select(payment, 0), "4000009900000053")
    await merchant.pay(await merchant.select(payment, 1))
    before = await has_ended(merchant, payment, "PAID", COMPLETED)
    await merchant.has_case(payment, "ORPHAN_CAPTURE")
    await stays(merchant, payment, before)


async def test_money_after_expiry_is_a_case(merchant: Merchant) -> None:
    payment = await pay_with(merchant, "4000009900000061", expires_in=2)
    before = await has_ended(merchant, payment, "EXPIRED", EXPIRED)
    await merchant.has_case(payment, "LATE_PAYMENT")
    await stays(merchant, payment, before)


@pytest.mark.parametrize("card", ["4000009900000079", "4000009900000087"])
async def test_money_of_another_amount_or_currency_fails_and_is_a_case(
    merchant: Merchant, card: str
) -> None:
    payment = await pay_with(merchant, card)
    seen = await has_ended(merchant, payment, "FAILED", FAILED)
    assert seen["failure_reason"] == "AMOUNT_MISMATCH"
    assert await merchant.cases(payment) == ["AMOUNT_MISMATCH"]


async def test_a_badly_signed_callback_is_refused_and_the_well_signed_one_pays(
    merchant: Merchant,
) -> None:
    payment = await pay_with(merchant, "4000009900000095")
    calls = await merchant.called_back(payment, 1)
    assert [call["status"] for call in calls] == [401, 200]
    await has_ended(merchant, payment, "PAID", COMPLETED)


async def test_a_payment_that_failed_stays_failed_when_it_is_paid_after_all(
    merchant: Merchant,
) -> None:
    payment = await pay_with(merchant, "4000009900000103")
    before = await has_ended(merchant, payment, "FAILED", FAILED)
    await merchant.has_case(payment, "LATE_PAYMENT")
    await stays(merchant, payment, before)


async def test_a_buyer_who_gives_up_at_the_gateway_may_choose_again(merchant: Merchant) -> None:
    payment = await merchant.create()
    page = await merchant.select(payment)
    async with merchant.http.post(f"{page}/cancel", allow_redirects=False) as answer:
        assert answer.status == 303
    await merchant.called_back(payment, 1)
    assert (await merchant.get(payment))["status"] == "PROCESSING"
    assert await merchant.events(payment) == []
    await merchant.pay(await merchant.select(payment, 1))
    await has_ended(merchant, payment, "PAID", COMPLETED)


@pytest.fixture
async def rule(merchant: Merchant) -> AsyncIterator[Any]:
    """Inject a fault into every session of 13.13."""

    async def disturb(action: str | None) -> None:
        rules = [{"match": {"amount": "13.13"}, "action": action}] if action else []
        assert await merchant.simulator("PUT", "/_sim/rules", rules) == rules

    yield disturb
    await disturb(None)


async def is_refused(merchant: Merchant, payment: dict[str, Any]) -> None:
    """A selection fails, and the payment is unchanged."""
    status, answer = await merchant.try_select(payment)
    assert (status, answer["code"]) == (502, "PG_UPSTREAM_ERROR")
    assert (await merchant.get(payment))["status"] == "PENDING"


async def test_a_gateway_out_of_order_for_a_while_leaves_the_payment_selectable(
    merchant: Merchant, rule: Any
) -> None:
    await rule("503x3")
    payment = await merchant.create(amount="13.13")
    for _ in range(3):
        await is_refused(merchant, payment)
    await merchant.pay(await merchant.select(payment))
    await has_ended(merchant, payment, "PAID", COMPLETED)


async def test_a_slow_gateway_is_waited_for(merchant: Merchant, rule: Any) -> None:
    await rule("hang35s")
    payment = await merchant.create(amount="13.13")
    await merchant.pay(await merchant.select(payment))
    await has_ended(merchant, payment, "PAID", COMPLETED)


async def test_a_session_whose_creation_could_not_be_read_is_closed_at_the_gateway(
    merchant: Merchant, rule: Any
) -> None:
    await rule("bad_json")
    payment = await merchant.create(amount="13.13")
    await is_refused(merchant, payment)

    async def closed() -> bool:
        [row] = await merchant.rows(
            "SELECT life, outcome FROM session WHERE payment_id = $1", key_of(payment)
        )
        return tuple(row) == ("ended", "closed")

    await wait_until(closed, "the session is closed")
    await rule(None)
    await merchant.pay(await merchant.select(payment))
    await has_ended(merchant, payment, "PAID", COMPLETED)


async def test_a_callback_before_the_answer_of_the_creation_pays(
    merchant: Merchant, rule: Any
) -> None:
    await rule("callback_before_response")
    payment = await merchant.create(amount="13.13")
    status, answer = await merchant.try_select(payment)
    assert (status, answer["checkout"]["status"]) == (200, "PAID")
    await has_ended(merchant, payment, "PAID", COMPLETED)
    assert await merchant.cases(payment) == []


async def test_a_broken_page_of_the_gateway_leaves_the_other_way_to_pay(
    merchant: Merchant, rule: Any
) -> None:
    await rule("hosted_500")
    payment = await merchant.create(amount="13.13")
    page = await merchant.select(payment)
    async with merchant.http.post(page, data={"card": "4242424242424242"}) as answer:
        assert answer.status == 500
    assert (await merchant.get(payment))["status"] == "PROCESSING"
    other = (await merchant.quotes(payment))[1]["payment_method_id"]
    page = await merchant.select(payment, 1)
    await rule(None)
    await merchant.pay(page)
    seen = await has_ended(merchant, payment, "PAID", COMPLETED)
    assert seen["payment_method_id"] == other
