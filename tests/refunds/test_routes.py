"""Refunds over HTTP: requests, results, and replays with an idempotency key."""

import re
from uuid import uuid4

import pytest

from payintent.core.access import RateLimitClass
from payintent.gateway_accounts.health import FAILURES_MAX, PAUSE_S, GatewayChannel
from payintent.gateways.port import GatewayRefundState, OutcomeUnknown, RefundReport
from payintent.merchants.access_operations import SetRateLimit
from tests.refunds.requests import (
    REFUNDS,
    create_in_status,
    create_paid,
    get_refund,
    get_refunds,
    post_raw_refund,
    post_refund,
    process_refunds,
    read_capture,
    read_stored_refunds,
)
from tests.support.arrange import cancel, payment_of, quotes, refusal, select, view
from tests.support.fakes import captured
from tests.support.world import Answer, Api

_REPLAYED = "Idempotency-Replayed"
_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
_DECLINED = RefundReport(state=GatewayRefundState.DECLINED, reference="re-1")
_PENDING = RefundReport(state=GatewayRefundState.PENDING, reference="re-1")


async def test_the_response_for_an_accepted_refund_matches_the_specification_exactly(
    api: Api,
) -> None:
    created = await create_paid(api)
    answer = await post_refund(api, created, amount="90.5", reason="one page is torn")
    assert answer.status == 201
    assert _REPLAYED not in answer.headers
    assert answer.headers["Content-Type"] == "application/json"
    golden = re.fullmatch(
        rf'{{"id":"ref_[0-9A-Za-z]{{22}}","payment_id":"{created.json["id"]}","amount":"90.5",'
        rf'"currency":"THB","status":"PENDING","reason":"one page is torn",'
        rf'"created_at":"({_TIME})","updated_at":"({_TIME})"}}',
        answer.body.decode(),
    )
    assert golden, answer.body
    assert golden[1] == golden[2]


async def test_a_refund_without_a_body_or_an_amount_is_for_the_whole_remainder(api: Api) -> None:
    for body in (None, "{}", "null", '{"reason":null,"destination":null,"unknown":1}'):
        created = await create_paid(api)
        answer = await (
            post_refund(api, created) if body is None else post_raw_refund(api, created, body)
        )
        assert (answer.status, answer.json["amount"]) == (201, "1590.00"), body
        assert "reason" not in answer.json
        assert await read_capture(api, created) == (159000, 0, 159000)


async def test_partial_refunds_and_the_remainder_make_the_payment_refunded(api: Api) -> None:
    created = await create_paid(api, amount="1590")
    before = (await api.get(created.json["id"])).json
    steps = [("90.00", "PARTIALLY_REFUNDED", "90.00"), ("500", "PARTIALLY_REFUNDED", "590.00"),
             (None, "REFUNDED", "1590.00")]  # fmt: skip
    for amount, status, so_far in steps:
        refund = await post_refund(api, created, **({"amount": amount} if amount else {}))
        assert refund.json["amount"] == (amount or "1000.00")
        assert (await api.get(created.json["id"])).json["refunded_amount"] != so_far
        await process_refunds(api.world)
        refund_view = (await get_refund(api, refund.json["id"])).json
        assert refund_view["status"] == "SUCCEEDED"
        assert refund_view["updated_at"] >= refund_view["created_at"]
        payment = (await api.get(created.json["id"])).json
        assert (payment["status"], payment["refunded_amount"]) == (status, so_far)
    changes = {"status": "REFUNDED", "refunded_amount": "1590.00"}
    assert payment | {"updated_at": ""} == before | changes | {"updated_at": ""}
    assert {"paid_at", "receipt_id", "provider", "quote_total_amount"} <= payment.keys()
    assert payment["updated_at"] >= before["updated_at"]
    assert await read_capture(api, created) == (159000, 159000, 0)


async def test_a_refund_does_not_change_the_tax_of_its_payment(api: Api) -> None:
    await api.world.rows("UPDATE merchant SET tax_manager = 'SERVICE'")
    await api.world.rows("INSERT INTO tax_rate (country, rate) VALUES ('TH', 0.07)")
    created = await api.create(country="TH")
    assert (await select(api, created, country="TH")).status == 200
    payment = await payment_of(api, created)
    assert payment.session_id is not None
    await api.world.report(payment, payment.session_id, captured(170130))
    payment_before = (await api.get(created.json["id"])).json
    assert payment_before["tax_amount"] == payment_before["estimated_tax"] == "111.30"
    await post_refund(api, created, amount="795.00")
    await process_refunds(api.world)
    payment_after = (await api.get(created.json["id"])).json
    assert payment_after["tax_amount"] == "111.30"
    assert await read_capture(api, created) == (
        170130,
        85065,
        0,
    )  # half of the total, including tax


async def test_a_refund_creates_no_event_whatever_its_outcome(api: Api) -> None:
    created = await create_paid(api)
    payment = await payment_of(api, created)
    await post_refund(api, created, amount="90.00")
    await process_refunds(api.world)
    api.world.gateway.answer_refund = _DECLINED
    await post_refund(api, created, amount="1.00")
    await process_refunds(api.world)
    api.world.gateway.answer_refund = RefundReport(state=GatewayRefundState.DONE)
    await post_refund(api, created)
    await process_refunds(api.world)
    assert [row["status"] for row in await read_stored_refunds(api.world)] == [
        "SUCCEEDED",
        "FAILED",
        "SUCCEEDED",
    ]
    assert await api.world.status(payment) == "REFUNDED"
    assert await api.world.events(payment) == ["payment.completed"]


async def test_a_declined_refund_reports_its_reason_and_releases_its_amount(api: Api) -> None:
    created = await create_paid(api)
    api.world.gateway.answer_refund = _DECLINED
    refund = await post_refund(api, created)
    await process_refunds(api.world)
    failed_refund = (await get_refund(api, refund.json["id"])).json
    assert (failed_refund["status"], failed_refund["failure_reason"]) == ("FAILED", "DECLINED")
    assert (await api.get(created.json["id"])).json["status"] == "PAID"
    api.world.gateway.answer_refund = _PENDING
    second_refund = await post_refund(api, created)
    await process_refunds(api.world)
    assert second_refund.status == 201
    assert (await get_refund(api, second_refund.json["id"])).json["status"] == "PENDING"


@pytest.mark.parametrize("outcome", [None, _PENDING, _DECLINED, RefundReport(
    state=GatewayRefundState.DONE)])  # fmt: skip
async def test_a_replay_is_identical_to_the_first_response_whatever_the_refunds_status(
    api: Api, outcome: RefundReport | None
) -> None:
    created, key = await create_paid(api), str(uuid4())
    first = await post_refund(
        api, created, key, amount="1590.0", reason="a\u0301 ก", destination=None
    )
    if outcome is not None:
        api.world.gateway.answer_refund = outcome
        await api.world.move_clock(3)
        await process_refunds(api.world)
    replay = await post_refund(
        api, created, key, amount="1590.0", reason="a\u0301 ก", destination=None
    )
    assert (replay.status, replay.body) == (201, first.body)
    assert replay.headers[_REPLAYED] == "true"
    assert len(await read_stored_refunds(api.world)) == 1


async def test_a_replay_succeeds_even_if_a_new_refund_would_be_refused(api: Api) -> None:
    created, key = await create_paid(api), str(uuid4())
    first = await post_refund(api, created, key)
    await process_refunds(api.world)
    await _open_circuit(api)
    assert (await post_refund(api, created, key)).body == first.body
    assert refusal(await post_refund(api, created)) == (409, "INVALID_PAYMENT_STATE")


async def test_a_key_with_a_different_body_or_payment_is_a_conflict(api: Api) -> None:
    created, second_payment, key = await create_paid(api), await create_paid(api), str(uuid4())
    assert (await post_refund(api, created, key, amount="90.00", reason="torn")).status == 201
    for body in (
        {},
        {"amount": "90"},
        {"amount": "90.00"},
        {"amount": "90.00", "reason": "lost"},
        {"amount": "90.00", "reason": "torn", "destination": "0x" + 40 * "1"},
    ):
        assert refusal(await post_refund(api, created, key, **body)) == (
            409,
            "IDEMPOTENCY_CONFLICT",
        ), body
    answer = await post_refund(api, second_payment, key, amount="90.00", reason="torn")
    assert refusal(answer) == (409, "IDEMPOTENCY_CONFLICT")
    assert len(await read_stored_refunds(api.world)) == 1


async def test_the_same_amount_in_a_different_format_is_replayed(api: Api) -> None:
    created, key = await create_paid(api), str(uuid4())
    first = await post_refund(api, created, key, amount="90.00")
    for amount in ("90", "90.0", "90.000"):
        replay = await post_refund(api, created, key, amount=amount)
        assert (replay.status, replay.body) == (201, first.body), amount
        assert replay.headers[_REPLAYED] == "true"
    assert len(await read_stored_refunds(api.world)) == 1


async def test_a_refused_refund_can_be_corrected_with_the_same_key(api: Api) -> None:
    created, key = await create_paid(api), str(uuid4())
    for amount in ("1590.01", "0", "-1.00", "1.001", "x"):
        assert (await post_refund(api, created, key, amount=amount)).status >= 400
    answer = await post_refund(api, created, key, amount="1590.00")
    assert (answer.status, answer.headers.get(_REPLAYED)) == (201, None)


async def test_a_key_used_for_a_create_or_a_cancel_can_be_used_for_a_refund(api: Api) -> None:
    key = str(uuid4())
    created = await create_paid(api, key=key)
    await cancel(api, await api.create(), key)
    assert (await post_refund(api, created, key)).status == 201


async def test_the_key_is_checked_before_the_body_and_the_body_before_the_payment(api: Api) -> None:
    created = await create_paid(api)
    path = REFUNDS.format(payment_id=created.json["id"])
    without_key = await api.send("POST", path, headers=api.bearer())
    assert refusal(without_key) == (400, "BAD_REQUEST")
    assert without_key.json["message"] == "Idempotency-Key is required"
    malformed_key = await api.send("POST", path, headers=api.bearer() | {"Idempotency-Key": "1"},
                             data="{")  # fmt: skip
    assert malformed_key.json["message"] == "Idempotency-Key must be a UUID"
    for payment_id in ("pay_0000000000000000000001", "pay_", "x", created.json["checkout_id"]):
        unknown_payment = Answer(200, f'{{"id":"{payment_id}"}}'.encode(), {})
        assert refusal(await post_raw_refund(api, unknown_payment, '{"amount":1}')) == (
            400,
            "INVALID_AMOUNT",
        )
        assert refusal(await post_refund(api, unknown_payment)) == (404, "NOT_FOUND")
        assert refusal(await get_refunds(api, unknown_payment, "?limit=0")) == (400, "BAD_REQUEST")
        assert refusal(await get_refunds(api, unknown_payment)) == (404, "NOT_FOUND")
    assert await read_stored_refunds(api.world) == []


@pytest.mark.parametrize(
    "body",
    [
        '{"reason":""}',
        '{"reason":"' + 501 * "x" + '"}',
        '{"reason":"a\\u0000"}',
        '{"reason":"a\\ud800"}',
        '{"reason":1}',
        '{"destination":""}',
        '{"destination":"a\\ud800"}',
        '{"destination":["0x"]}',
        "[]",
        '"all"',
        " ",
        "{",
    ],
)
async def test_a_malformed_body_is_refused(api: Api, body: str) -> None:
    assert refusal(await post_raw_refund(api, await create_paid(api), body)) == (400, "BAD_REQUEST")
    assert await read_stored_refunds(api.world) == []


async def test_a_reason_of_five_hundred_characters_is_passed_to_the_gateway(
    api: Api,
) -> None:
    reason = 499 * "x" + "ก"
    answer = await post_refund(api, await create_paid(api), reason=reason)
    assert answer.json["reason"] == reason
    await process_refunds(api.world)
    assert [refund.reason for refund in api.world.gateway.refunds] == [reason]


@pytest.mark.parametrize(
    "status", ["PENDING", "PROCESSING", "FAILED", "EXPIRED", "CANCELLED", "REFUNDED"]
)
async def test_only_a_paid_and_not_fully_refunded_payment_can_be_refunded(
    api: Api, status: str
) -> None:
    created = await create_in_status(api, status)
    before = len(await read_stored_refunds(api.world))
    for body in ({}, {"amount": "1.00"}):
        answer = await post_refund(api, created, **body)
        assert refusal(answer) == (409, "INVALID_PAYMENT_STATE")
        assert status in answer.json["message"]
    assert len(await read_stored_refunds(api.world)) == before


@pytest.mark.parametrize("status", ["PARTIALLY_REFUNDED", "REFUNDED"])
async def test_a_refunded_payment_cannot_be_cancelled_or_paid_again(api: Api, status: str) -> None:
    created = await create_in_status(api, status)
    cancellation = await cancel(api, created)
    assert refusal(cancellation) == (409, "INVALID_PAYMENT_STATE")
    assert status in cancellation.json["message"]
    assert (await view(api, created)).json["status"] == status
    assert refusal(await quotes(api, created)) == (409, "INVALID_CHECKOUT_STATE")
    page = await api.send("GET", f"/c/{created.json['checkout_id']}")
    assert page.status == 200
    response = await api.send("GET", f"/v1/payments?status={status}", headers=api.bearer())
    assert [item["id"] for item in response.json["data"]] == [created.json["id"]]


async def test_a_suspended_merchant_can_refund_through_a_disabled_account(
    api: Api,
) -> None:
    """Activation controls only incoming payments."""
    created = await create_paid(api)
    await api.world.rows("UPDATE merchant SET activation = 'SUSPENDED'")
    await api.world.rows("UPDATE provider_account SET enabled = false")
    await api.world.rows("UPDATE payment_method SET enabled = false")
    assert (await post_refund(api, created)).status == 201
    await process_refunds(api.world)
    assert (await api.get(created.json["id"])).json["status"] == "REFUNDED"


async def test_fraud_rules_do_not_apply_to_refunds(api: Api) -> None:
    created = await create_paid(api)
    await api.world.rows(
        "INSERT INTO fraud_rule (kind, value, code, level, score) "
        "VALUES ('PAYER', 'buyer-1', 'PAYER_BLOCKED', 'HIGH', 90)"
    )
    assert (await post_refund(api, created)).status == 201


async def _open_circuit(api: Api) -> None:
    """Record timeouts of the refund channel until its circuit opens."""
    health, timeout = api.world.health, OutcomeUnknown(detail="no answer")
    for _ in range(FAILURES_MAX):
        await health.record_result(api.world.account_id, GatewayChannel.REFUNDS, timeout)


async def test_a_refund_during_an_outage_reserves_nothing_and_leaves_its_key_free(
    api: Api,
) -> None:
    created, key = await create_paid(api), str(uuid4())
    await _open_circuit(api)
    for _ in range(2):
        answer = await post_refund(api, created, key)
        assert refusal(answer) == (503, "REFUND_PROVIDER_UNAVAILABLE")
        assert answer.headers["Retry-After"] == str(PAUSE_S)
    assert await read_stored_refunds(api.world) == []
    assert await read_capture(api, created) == (159000, 0, 0)
    assert (await api.create()).status == 201  # the payment channel is not affected
    health = api.world.health
    await health.record_result(
        api.world.account_id, GatewayChannel.REFUNDS, RefundReport(state=GatewayRefundState.DONE)
    )
    answer = await post_refund(api, created, key)
    assert (answer.status, answer.headers.get(_REPLAYED)) == (201, None)


async def test_an_excessive_refund_is_refused_as_such_even_during_an_outage(api: Api) -> None:
    created = await create_paid(api)
    await _open_circuit(api)
    assert refusal(await post_refund(api, created, amount="1590.01")) == (
        409,
        "REFUND_EXCEEDS_REMAINING",
    )


async def test_refunds_count_towards_the_read_rate_limit(api: Api) -> None:
    created = await create_paid(api)
    for kind in (RateLimitClass.CREATE, RateLimitClass.READ):
        await api.world.perform(
            SetRateLimit(merchant_id=api.world.merchant_id, kind=kind, per_s=1, burst=1000)
        )
    refund = await post_refund(api, created)
    answers = [refund, await get_refund(api, refund.json["id"]), await get_refunds(api, created)]
    assert {answer.headers["RateLimit-Policy"] for answer in answers} == {'"read";q=1;w=1'}
