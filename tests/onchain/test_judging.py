"""The effects of final logs that do not match the session: each row of the table."""

from typing import Any

import asyncpg
import pytest

from payintent.chains.operations import AddContract, SetToken
from payintent.payments.cancel import cancel_by_merchant
from payintent_sandbox.chains.deploy import PLANS, deploy
from tests.support.onchain import ChainWorld, session_path
from tests.support.world import Api

CENT = 10**16


async def shown(ground: ChainWorld, session: Any) -> str:
    return (await ground.view(session))["status"]


@pytest.mark.parametrize(
    ("changes", "disposition", "case"),
    [
        ({"by": -CENT}, "underpaid", "AMOUNT_MISMATCH"),
        ({"by": +CENT}, "overpaid", "AMOUNT_MISMATCH"),
        ({"token": "NATIVED"}, "wrong_token", "TOKEN_MISMATCH"),
    ],
)
async def test_a_stray_mismatch_is_a_case_and_the_payment_can_still_be_paid(
    ground: ChainWorld, changes: dict[str, Any], disposition: str, case: str
) -> None:
    payment, session = await ground.bill("USDT")
    amount = session.quote.total_minor + changes.get("by", 0)
    token = changes.get("token", "USDT")
    await ground.pay_otherwise(session, amount=amount, token=token)
    await ground.turn()
    assert await shown(ground, session) == "mismatch"
    await ground.final()
    assert await ground.dispositions() == [disposition]
    assert await ground.cases() == [case]
    await ground.pass_time(600)  # whoever copies a uuid must not be able to end a payment
    await ground.turn()
    assert await ground.status(payment) == "PROCESSING"
    assert await shown(ground, session) == "mismatch"
    assert (await ground.view(session))["payable"]
    await ground.pay(session)
    await ground.final()
    assert await ground.status(payment) == "PAID"
    assert await ground.world.events(payment) == ["payment.completed"]
    [capture] = await ground.world.rows("SELECT * FROM capture WHERE NOT credited")
    assert capture["currency"] == token
    assert capture["amount_minor"] == amount


async def test_a_uuid_that_nobody_knows_is_a_case_of_nobody(ground: ChainWorld) -> None:
    payment, session = await ground.bill("USDT")
    await ground.pay_otherwise(session, uuid=bytes(16))
    await ground.turn()
    assert await shown(ground, session) == "awaiting_payment"
    await ground.final()
    assert await ground.dispositions() == ["unknown_uuid"]
    [case] = await ground.world.rows("SELECT * FROM money_case")
    assert case["kind"] == "UNKNOWN_REFERENCE"
    assert case["payment_id"] is case["session_id"] is case["merchant_id"] is None
    [capture] = await ground.world.rows("SELECT * FROM capture")  # to be given back from
    assert (capture["id"], capture["credited"]) == (case["capture_id"], False)
    assert capture["payment_id"] is capture["session_id"] is None
    assert await ground.status(payment) == "PROCESSING"


async def test_a_payment_through_another_contract_of_ours_is_nobodys(ground: ChainWorld) -> None:
    payment, session = await ground.bill("NATIVED")
    other = await deploy(ground.chain, PLANS["native"])
    await ground.world.perform(
        AddContract(
            chain="native",
            address=other.contract_address,
            receiver=other.receiver,
            deployed_block=other.deployed_block,
        )
    )
    await ground.pay_otherwise(session, contract=other.contract_address)
    await ground.final()
    assert await ground.dispositions() == ["unknown_uuid"]
    assert await ground.cases() == ["UNKNOWN_REFERENCE"]
    await ground.pay(session)  # the account that it is billed through still counts
    await ground.final()
    assert await ground.status(payment) == "PAID"


async def test_money_for_a_foreign_receiver_is_a_case_and_ends_no_payment(
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


async def test_a_second_payment_of_another_amount_is_a_double_payment(ground: ChainWorld) -> None:
    payment, session = await ground.bill("USDT")
    await ground.pay(session)
    await ground.final()
    await ground.pay_otherwise(session, amount=CENT)
    await ground.final()
    assert await ground.dispositions() == ["credited", "duplicate"]
    assert await ground.world.cases(payment) == ["DOUBLE_PAYMENT"]
    assert await ground.world.events(payment) == ["payment.completed"]


async def test_money_for_a_replaced_session_is_a_case_without_an_event(
    ground: ChainWorld, api: Api
) -> None:
    payment, session = await ground.bill("USDT")
    await ground.turn()
    await ground.world.select(payment, ground.world.card)
    gone = await api.send("GET", session_path(session))
    assert (gone.status, gone.json["code"]) == (410, "SESSION_GONE")
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


async def test_a_payment_that_was_cancelled_before_any_selection_has_no_session(
    ground: ChainWorld,
) -> None:
    payment = await ground.world.create()
    async with ground.world.database.transaction() as tx:
        await cancel_by_merchant(tx, payment, None)
    assert await ground.world.rows("SELECT FROM session") == []


async def test_native_coins_sent_without_a_call_are_refused_by_the_contract(
    ground: ChainWorld,
) -> None:
    step = {"to": ground.deployment.contract_address, "value": hex(CENT), "data": "0x"}
    tx_hash = await ground.send(step)
    assert (await ground.chain.receipt(tx_hash))["status"] == "0x0"


async def test_a_token_that_moves_leaves_open_bills_where_they_are(ground: ChainWorld) -> None:
    payment, session = await ground.bill("USDT")
    before = await ground.view(session)
    del before["links"]["metamask"]  # the link contains the time
    place = ground.token("USDT")
    await ground.world.perform(SetToken(chain="native", symbol="USDT", address="0x" + 40 * "8"))
    after = await ground.view(session)
    del after["links"]["metamask"]
    assert after == before
    assert before["token"]["address"].lower() == place
    await ground.pay(session)
    await ground.final()
    assert await ground.dispositions() == ["credited"]
    assert await ground.status(payment) == "PAID"
    _, later = await ground.bill("USDT")
    assert (await ground.view(later))["token"]["address"] == "0x" + 40 * "8"


async def test_where_a_token_was_when_it_was_billed_never_changes(ground: ChainWorld) -> None:
    await ground.bill("USDT")
    with pytest.raises(asyncpg.CheckViolationError):
        await ground.world.rows("UPDATE session SET token_address = NULL")
