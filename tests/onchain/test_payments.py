"""A token payment from its selection to PAID, on a real chain."""

from datetime import timedelta
from typing import Any

import pytest

from tests.support.onchain import ChainWorld, session_path
from tests.support.world import Api


async def captures(ground: ChainWorld) -> list[Any]:
    return await ground.world.rows(
        "SELECT payment_id, credited, currency, amount_minor FROM capture ORDER BY id"
    )


@pytest.mark.parametrize("token", ["USDT", "NATIVED"])
async def test_an_exact_payment_is_paid_when_it_is_final(
    ground: ChainWorld, api: Api, token: str
) -> None:
    payment, session = await ground.bill(token)
    await ground.turn()
    assert (await ground.view(session))["status"] == "awaiting_payment"
    await ground.pay(session)
    await ground.turn()
    assert await ground.status(payment) == "PROCESSING"
    assert (await ground.view(session))["status"] in {"detected", "confirming"}
    assert not (await ground.view(session))["payable"]
    await ground.final()
    assert await ground.status(payment) == "PAID"
    assert await ground.world.events(payment) == ["payment.completed"]
    assert await ground.cases() == []
    [capture] = await captures(ground)
    assert capture["credited"]
    assert capture["currency"] == token
    assert capture["amount_minor"] == session.quote.total_minor
    assert (await ground.world.session(session.id))["outcome"] == "captured"
    response = await api.send("GET", session_path(session))
    assert (response.status, response.json["code"]) == (410, "SESSION_GONE")


async def test_paid_at_is_the_database_time_when_finality_is_recorded(
    ground: ChainWorld,
) -> None:
    payment, session = await ground.bill("USDT")
    await ground.pay(session)
    await ground.turn()
    await ground.mine(3)
    await ground.move_clock(600)  # the chain's blocks are ten minutes older
    [before] = await ground.world.rows("SELECT clock() AS now")
    await ground.turn()
    [after] = await ground.world.rows("SELECT clock() AS now")
    stored_payment = (await ground.world.read(payment)).payment
    assert stored_payment.paid_at is not None
    assert before["now"] <= stored_payment.paid_at <= after["now"]
    [receipt] = await ground.world.rows("SELECT final_at FROM chain_receipt")
    assert receipt["final_at"] == stored_payment.paid_at
    assert stored_payment.paid_at - stored_payment.created_at >= timedelta(minutes=10)


async def test_the_exact_payment_is_credited_among_several_in_the_same_block(
    ground: ChainWorld,
) -> None:
    payment, session = await ground.bill("USDT")
    total = session.quote.total_minor
    await ground.chain.ask("evm_setAutomine", False)
    calls = [
        ground.call(session, amount=total - 1),
        ground.call(session, token="NATIVED"),
        ground.call(session),
        ground.call(session, amount=total + 1),
    ]
    for call in calls:
        transaction = {"from": ground.payer, "gas": hex(3_000_000), **call}
        await ground.chain.ask("eth_sendTransaction", transaction)
    await ground.mine(1)
    await ground.chain.ask("evm_setAutomine", True)
    await ground.final()
    assert await ground.status(payment) == "PAID"
    assert await ground.dispositions() == ["underpaid", "wrong_token", "credited", "duplicate"]
    assert await ground.cases() == ["AMOUNT_MISMATCH", "DOUBLE_PAYMENT", "TOKEN_MISMATCH"]
    assert await ground.world.events(payment) == ["payment.completed"]
    amounts = sorted(
        (row["amount_minor"] - total, row["currency"]) for row in await captures(ground)
    )
    assert amounts == [(-1, "USDT"), (0, "NATIVED"), (0, "USDT"), (1, "USDT")]
    [credited] = [row for row in await captures(ground) if row["credited"]]
    assert (credited["amount_minor"], credited["currency"]) == (total, "USDT")


async def test_logs_that_are_read_twice_are_recorded_once(ground: ChainWorld) -> None:
    payment, session = await ground.bill("USDT")
    await ground.pay(session)
    await ground.pay_otherwise(session, amount=20_000_000_000_000_000)
    await ground.final()
    before = await ground.world.rows("SELECT * FROM chain_receipt ORDER BY id")
    await ground.world.rows("UPDATE chain_cursor SET block = 1, hash = NULL, at = NULL")
    await ground.final()
    assert await ground.world.rows("SELECT * FROM chain_receipt ORDER BY id") == before
    assert await ground.cases() == ["DOUBLE_PAYMENT"]
    assert await ground.status(payment) == "PAID"
