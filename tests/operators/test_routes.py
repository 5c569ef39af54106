"""The operator port: named tokens, public metrics, and rejected merchant keys."""

import pytest

from payintent.core import ids
from payintent.operators.operations import RevokeOperatorToken
from tests.support.fakes import captured
from tests.support.world import Api, World


async def test_metrics_need_no_token_and_include_refused_callbacks(operator: Api) -> None:
    answer = await operator.send("GET", "/metrics")
    assert answer.status == 200
    assert b"payintent_callbacks_refused_total" in answer.body


@pytest.mark.parametrize(
    "path", ["/operator/webhooks", "/operator/payments/pay_0000000000000000000000"]
)
async def test_routes_require_an_operator_token(operator: Api, path: str) -> None:
    assert (await operator.send("GET", path)).status == 401
    merchants = await operator.send("GET", path, headers=operator.bearer())
    assert (merchants.status, merchants.json["code"]) == (401, "UNAUTHORIZED")


async def test_an_operator_can_read_a_payment_with_its_cases_and_replay_its_event(
    operator: Api, world: World
) -> None:
    token = operator.bearer(await world.operator_token())
    payment = await world.create()
    selected = await world.select(payment)
    await world.report(payment, selected.session.id, captured(1))
    path = f"/operator/payments/{ids.format_id(ids.PAYMENT, payment.id)}"
    payment_view = (await operator.send("GET", path, headers=token)).json
    assert [case["kind"] for case in payment_view["cases"]] == ["AMOUNT_MISMATCH"]
    assert payment_view["checkout_id"] == ids.mask_checkout_id(payment.checkout_id)
    events = (await operator.send("GET", "/operator/webhooks", headers=token)).json["data"]
    assert [(item["type"], item["state"]) for item in events] == [("payment.failed", "skipped")]
    event = events[0]["event_id"]
    replayed = await operator.send("POST", f"/operator/webhooks/{event}/replay", headers=token)
    assert replayed.json == {"event_id": event, "state": "pending"}


async def test_a_revoked_token_is_rejected_immediately(operator: Api, world: World) -> None:
    text = await world.operator_token("bob")
    assert (
        await operator.send("GET", "/operator/webhooks", headers=operator.bearer(text))
    ).status == 200
    await world.perform(RevokeOperatorToken(public_id=text.split("_")[1]))
    refused = await operator.send("GET", "/operator/webhooks", headers=operator.bearer(text))
    assert refused.status == 401


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x", "merchant=-1", "state=lost"])
async def test_invalid_filters_are_rejected(operator: Api, world: World, query: str) -> None:
    token = operator.bearer(await world.operator_token())
    answer = await operator.send("GET", f"/operator/webhooks?{query}", headers=token)
    assert (answer.status, answer.json["code"]) == (400, "BAD_REQUEST")


async def test_the_public_port_has_no_operator_routes(api: Api) -> None:
    assert (await api.send("GET", "/metrics")).status == 404
    assert (await api.send("GET", "/operator/webhooks")).status == 404
