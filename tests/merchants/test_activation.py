"""The activation of a merchant outside the sandbox, and the permissions of each step."""

from itertools import product
from typing import Any
from uuid import uuid4

import pytest

from payintent.core.errors import ErrorCode, RefusedError
from payintent.merchants.activation import (
    ActivateMerchant,
    ApplyActivation,
    RequestActivation,
    ResumeMerchant,
    ShowActivation,
    SuspendMerchant,
    ValidateActivation,
)
from payintent.merchants.methods_operations import AddPaymentMethod
from payintent.merchants.model import TRANSITIONS, ActivationAction, ActivationStatus
from tests.support.arrange import refusal
from tests.support.operation_examples import Stage
from tests.support.world import Answer, Api

_STEPS = {
    ActivationAction.APPLY: ApplyActivation,
    ActivationAction.VALIDATE: ValidateActivation,
    ActivationAction.ACTIVATE: ActivateMerchant,
    ActivationAction.SUSPEND: SuspendMerchant,
    ActivationAction.RESUME: ResumeMerchant,
}


def _request(merchant_id: int, *currencies: str) -> RequestActivation:
    return RequestActivation(
        merchant_id=merchant_id,
        countries=["TH", "JP"],
        currencies=list(currencies or ("THB",)),
        contract="archive/contracts/7",
        kyc="archive/kyc/7",
    )


async def _perform_step(stage: Stage, step: ActivationAction) -> Any:
    merchant_id = stage.known["merchant"]
    if step is ActivationAction.REQUEST:
        return await stage.perform(_request(merchant_id))
    return await stage.perform(_STEPS[step](merchant_id=merchant_id))


async def _create(api: Api, key: str, currency: str = "THB") -> Answer:
    body = {"currency": currency, "amount": "100", "payer_uid": "buyer-1"}
    headers = api.bearer(key) | {"Idempotency-Key": str(uuid4())}
    return await api.send("POST", "/v1/payments", json=body, headers=headers)


async def _get_quotes(api: Api, created: Answer) -> list[Any]:
    path = f"/v1/checkout/{created.json['checkout_id']}/quotes?country=TH"
    return (await api.send("GET", path)).json["quotes"]


async def test_a_merchant_is_activated_suspended_and_resumed(stage: Stage, api: Api) -> None:
    key = stage.known["api_key"]

    async def assert_refused(state: str) -> None:
        answer = await _create(api, key)
        assert refusal(answer) == (422, "UNPROCESSABLE")
        assert answer.json["message"] == f"this merchant does not accept payments: it is {state}"

    await assert_refused("NEW")
    file = await _perform_step(stage, ActivationAction.REQUEST)
    assert (file.activation, file.contract, file.kyc) == (
        *("REQUESTED", "archive/contracts/7", "archive/kyc/7"),
    )
    assert (file.requested_countries, file.countries) == (["TH", "JP"], None)
    await assert_refused("REQUESTED")

    file = await _perform_step(stage, ActivationAction.APPLY)
    assert (file.activation, file.countries, file.currencies) == (
        *("APPLIED", ["TH", "JP"], ["THB"]),
    )
    trial = await _create(api, key)
    assert trial.status == 201
    assert [quote["label"] for quote in await _get_quotes(api, trial)] == ["Card"]
    # The market is limited to the request even if the method supports more.
    assert refusal(await _create(api, key, "JPY")) == (422, "UNSUPPORTED_CURRENCY")

    assert (await _perform_step(stage, ActivationAction.VALIDATE)).activation == "VALIDATED"
    assert (await _create(api, key)).status == 201
    file = await _perform_step(stage, ActivationAction.ACTIVATE)
    assert (file.activation, file.activated_at is not None) == ("ACTIVE", True)
    created = await _create(api, key)
    assert created.status == 201

    assert (await _perform_step(stage, ActivationAction.SUSPEND)).activation == "SUSPENDED"
    await assert_refused("SUSPENDED")
    assert await _get_quotes(api, created) == []
    path = f"/v1/checkout/{created.json['checkout_id']}/quotes"
    selection = {"payment_method_id": stage.known["method"], "country": "TH"}
    assert refusal(await api.send("POST", path, json=selection)) == (422, "PG_NOT_AVAILABLE")
    payment_path = f"/v1/payments/{created.json['id']}"
    assert (await api.send("GET", payment_path, headers=api.bearer(key))).status == 200

    resumed = await _perform_step(stage, ActivationAction.RESUME)
    assert (resumed.activation, resumed.activated_at) == ("ACTIVE", file.activated_at)
    assert (await api.send("POST", path, json=selection)).status == 200


async def test_a_merchant_that_was_never_active_resumes_as_applied(stage: Stage) -> None:
    for step in ("request", "apply", "validate", "suspend"):
        await _perform_step(stage, ActivationAction(step))
    resumed = await _perform_step(stage, ActivationAction.RESUME)
    assert (resumed.activation, resumed.activated_at) == ("APPLIED", None)


async def test_an_active_merchant_can_extend_its_market_without_interruption(
    stage: Stage, api: Api
) -> None:
    key = stage.known["api_key"]
    for step in ("request", "apply", "validate", "activate"):
        await _perform_step(stage, ActivationAction(step))
    merchant_id = stage.known["merchant"]
    requested = await stage.perform(_request(merchant_id, "THB", "JPY"))
    assert (requested.activation, requested.currencies) == ("ACTIVE", ["THB"])
    assert refusal(await _create(api, key, "JPY")) == (422, "UNSUPPORTED_CURRENCY")
    applied = await stage.perform(ApplyActivation(merchant_id=merchant_id))
    assert (applied.activation, applied.currencies) == ("ACTIVE", ["THB", "JPY"])
    assert (await _create(api, key, "JPY")).status == 201


async def test_a_request_can_be_corrected_until_it_is_applied(stage: Stage) -> None:
    await _perform_step(stage, ActivationAction.REQUEST)
    corrected = await stage.perform(_request(stage.known["merchant"], "JPY"))
    assert (corrected.activation, corrected.requested_currencies) == ("REQUESTED", ["JPY"])


@pytest.mark.parametrize("state", list(ActivationStatus))
async def test_no_activation_step_can_be_skipped_or_repeated(
    stage: Stage, state: ActivationStatus
) -> None:
    """If the table forbids a transition, it is rejected and changes nothing."""
    merchant_id = stage.known["merchant"]
    for step in _STEPS_TO[state]:
        await _perform_step(stage, step)
    for step in ActivationAction:
        if (state, step) in TRANSITIONS:
            continue
        with pytest.raises(
            RefusedError, match=f"cannot {step} a merchant that is {state}"
        ) as error:
            await _perform_step(stage, step)
        assert error.value.code is ErrorCode.CONFLICT
    file = await stage.perform(ShowActivation(merchant_id=merchant_id))
    assert file.activation == state


_STEP_ORDER = [
    ActivationAction(step) for step in ("request", "apply", "validate", "activate", "suspend")
]
_STEPS_TO = {state: _STEP_ORDER[:number] for number, state in enumerate(ActivationStatus)}


def test_the_transition_table_contains_every_status_and_action() -> None:
    assert {state for state, _ in TRANSITIONS} == set(ActivationStatus)
    assert {step for _, step in TRANSITIONS} == set(ActivationAction)
    assert len(TRANSITIONS) < len(list(product(ActivationStatus, ActivationAction)))


async def test_a_sandbox_merchant_has_no_activation_request_to_apply(stage: Stage) -> None:
    sandbox = stage.known["old_merchant"]
    with pytest.raises(RefusedError, match="has not requested a market") as error:
        await stage.perform(ApplyActivation(merchant_id=sandbox))
    assert error.value.code is ErrorCode.CONFLICT


async def test_payment_methods_can_be_added_before_activation(stage: Stage) -> None:
    method = AddPaymentMethod(
        merchant_id=stage.known["merchant"],
        account_id=stage.known["account"],
        kind="qr",
        label="QR",
        currencies=["THB"],
    )
    assert (await stage.perform(method)).enabled
