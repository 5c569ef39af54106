"""The effects of final logs that do not match the session."""

from typing import Any

import asyncpg
import pytest

from payintent.chains.operations import AddContract, SetToken
from payintent.payments.cancel import cancel_by_merchant
from payintent_sandbox.chains.deploy import PLANS, deploy
from tests.support.onchain import ChainWorld, session_path
from tests.support.world import Api

CENT = 10**16


async def read_status(ground: ChainWorld, session: Any) -> str:
    return (await ground.view(session))["status"]


@pytest.mark.parametrize(
    ("changes", "disposition", "case"),
    [
        ({"by": -CENT}, "underpaid", "AMOUNT_MISMATCH"),
        ({"by": +CENT}, "overpaid", "AMOUNT_MISMATCH"),
        ({"token": "NATIVED"}, "wrong_token", "TOKEN_MISMATCH"),
    ],
)
async def test_a_mismatch_opens_a_case_and_the_payment_can_still_be_paid(
    ground: ChainWorld, changes: dict[str, Any], disposition: str, case: str
) -> None:
    payment, session = await ground.bill("USDT")
    amount = session.quote.total_minor + changes.get("by", 0)
    token = changes.get("token", "USDT")
    await ground.pay_otherwise(session, amount=amount, token=token)
    await ground.turn()
    assert await read_status(ground, session) == "mismatch"
    await ground.final()
    assert await ground.dispositions() == [disposition]
    assert await ground.cases() == [case]
    await ground.pass_time(600)  # a copied uuid must not end the payment
    await ground.turn()
    assert await ground.status(payment) == "PROCESSING"
    assert await read_status(ground, session) == "mismatch"
    assert (await ground.view(session))["payable"]
    await ground.pay(session)
    await ground.final()
    assert await ground.status(payment) == "PAID"
    assert await ground.world.events(payment) == ["payment.completed"]
    [capture] = await ground.world.rows("SELECT * FROM capture WHERE NOT credited")
    assert capture["currency"] == token
    assert capture["amount_minor"] == amount


async def test_an_unknown_uuid_opens_a_case_without_a_merchant(ground: ChainWorld) -> None:
    payment, session = await ground.bill("USDT")
    await ground.pay_otherwise(session, uuid=bytes(16))
    await ground.turn()
    assert await read_status(ground, session) == "awaiting_payment"
    await ground.final()
    assert await ground.dispositions() == ["unknown_uuid"]
    [case] = await ground.world.rows("SELECT * FROM money_case")
    assert case["kind"] == "UNKNOWN_REFERENCE"
    assert case["payment_id"] is case["session_id"] is case["merchant_id"] is None
    [capture] = await ground.world.rows("SELECT * FROM capture")  # a refund needs a capture
    assert (capture["id"], capture["credited"]) == (case["capture_id"], False)
    assert capture["payment_id"] is capture["session_id"] is None
    assert await ground.status(payment) == "PROCESSING"


async def test_a_payment_through_a_second_contract_is_an_unknown_reference(
    ground: ChainWorld,
) -> None:
    payment, session = await ground.bill("NATIVED")
    deployment = await deploy(ground.chain, PLANS["native"])
    await ground.world.perform(
        AddContract(
            chain="native",
            address=deployment.contract_address,
            receiver=deployment.receiver,
            deployed_block=deployment.deployed_block,
        )
    )
    await ground.pay_otherwise(session, contract=deployment.contract_address)
    await ground.final()
    assert await ground.dispositions() == ["unknown_uuid"]
    assert await ground.cases() == ["UNKNOWN_REFERENCE"]
    await ground.pay(session)  # the original contract still counts
    await ground.final()
    assert await ground.status(payment) == "PAID"


async def test_money_for_a_foreign_receiver_opens_a_case_and_does_not_end_the_payment(
    ground: ChainWorld,
) -> None:
    payment, session = await ground.bill("NATIVED")
    await ground.world.rows("UPDATE chain_contract SET receiver = $1", bytes(19) + b"\x01")
    await ground.pay(session)
    await ground.final()
    assert await ground.dispositions() == ["wrong_receiver"]
    assert await ground.cases() == ["UNKNOWN_REFERENCE"]
    assert await ground.status(payment) == "PROCESSING"
    assert await ground.world.events(payment) == []


async def test_a_second_payment_with_a_different_amount_is_a_double_payment(
    ground: ChainWorld,
) -> None:
    payment, session = await ground.bill("USDT")
    await ground.pay(session)
    await ground.final()
    await ground.pay_otherwise(session, amount=CENT)
    await ground.final()
    assert await ground.dispositions() == ["credited", "duplicate"]
    assert await ground.world.cases(payment) == ["DOUBLE_PAYMENT"]
    assert await ground.world.events(payment) == ["payment.completed"]


async def test_money_for_a_replaced_session_opens_a_case_without_an_event(
    ground: ChainWorld, api: Api
) -> None:
    payment, session = await ground.bill("USDT")
    await ground.turn()
    await ground.world.select(payment, ground.world.card)
    response = await api.send("GET", session_path(session))
    assert (response.status, response.json["code"]) == (410, "SESSION_GONE")
    await ground.pay_otherwise(session)
    await ground.final()
    assert await ground.dispositions() == ["closed_session"]
    assert await ground.world.cases(payment) == ["ORPHAN_CAPTURE"]
    assert await ground.status(payment) == "PROCESSING"
    assert await ground.world.events(payment) == []


async def test_money_for_an_expired_payment_is_late(ground: ChainWorld, api: Api) -> None:
    payment, session = await ground.bill("USDT")
    await ground.pass_time(1801)
    await ground.turn()
    await ground.final()
    assert await ground.status(payment) == "EXPIRED"
    assert (await api.send("GET", session_path(session))).status == 410
    await ground.pay_otherwise(session)
    await ground.final()
    assert await ground.dispositions() == ["late"]
    assert await ground.world.cases(payment) == ["LATE_PAYMENT"]
    assert await ground.world.events(payment) == ["payment.expired"]


async def test_a_payment_cancelled_before_any_selection_has_no_session(
    ground: ChainWorld,
) -> None:
    payment = await ground.world.create()
    async with ground.world.database.transaction() as tx:
        await cancel_by_merchant(tx, payment, None)
    assert await ground.world.rows("SELECT FROM session") == []


async def test_the_contract_rejects_native_coins_sent_without_a_call(
    ground: ChainWorld,
) -> None:
    step = {"to": ground.deployment.contract_address, "value": hex(CENT), "data": "0x"}
    tx_hash = await ground.send(step)
    assert (await ground.chain.receipt(tx_hash))["status"] == "0x0"


async def test_a_new_token_address_does_not_change_open_bills(ground: ChainWorld) -> None:
    payment, session = await ground.bill("USDT")
    before = await ground.view(session)
    del before["links"]["metamask"]  # the link contains the time
    token_address = ground.token("USDT")
    await ground.world.perform(SetToken(chain="native", symbol="USDT", address="0x" + 40 * "8"))
    after = await ground.view(session)
    del after["links"]["metamask"]
    assert after == before
    assert before["token"]["address"].lower() == token_address
    await ground.pay(session)
    await ground.final()
    assert await ground.dispositions() == ["credited"]
    assert await ground.status(payment) == "PAID"
    _, new_session = await ground.bill("USDT")
    assert (await ground.view(new_session))["token"]["address"] == "0x" + 40 * "8"


async def test_the_token_address_of_a_session_cannot_be_cleared(ground: ChainWorld) -> None:
    await ground.bill("USDT")
    with pytest.raises(asyncpg.CheckViolationError):
        await ground.world.rows("UPDATE session SET token_address = NULL")
