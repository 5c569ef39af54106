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
    gone = await api.send("GET", session_path(session))
    assert (gone.status, gone.json["code"]) == (410, "SESSION_GONE")


async def test_paid_at_is_the_databases_time_of_the_transaction_that_saw_finality(
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
    paid = (await ground.world.read(payment)).payment
    assert paid.paid_at is not None
    assert before["now"] <= paid.paid_at <= after["now"]
    [receipt] = await ground.world.rows("SELECT final_at FROM chain_receipt")
    assert receipt["final_at"] == paid.paid_at
    assert paid.paid_at - paid.created_at >= timedelta(minutes=10)


async def test_everything_in_one_block_is_judged_and_the_exact_payment_wins(
    ground: ChainWorld,
) -> None:
    payment, session = await ground.bill("USDT")
    total = session.quote.total_minor
    await ground.chain.ask("evm_setAutomine", False)
    sent = [
        ground.call(session, amount=total - 1),
        ground.call(session, token="NATIVED"),
        ground.call(session),
        ground.call(session, amount=total + 1),
    ]
    for one in sent:
        asked = {"from": ground.payer, "gas": hex(3_000_000), **one}
        await ground.chain.ask("eth_sendTransaction", asked)
    await ground.mine(1)
    await ground.chain.ask("evm_setAutomine", True)
    await ground.final()
    assert await ground.status(payment) == "PAID"
    assert await ground.dispositions() == ["underpaid", "wrong_token", "credited", "duplicate"]
    assert await ground.cases() == ["AMOUNT_MISMATCH", "DOUBLE_PAYMENT", "TOKEN_MISMATCH"]
    assert await ground.world.events(payment) == ["payment.completed"]
    found = sorted((one["amount_minor"] - total, one["currency"]) for one in await captures(ground))
    assert found == [(-1, "USDT"), (0, "NATIVED"), (0, "USDT"), (1, "USDT")]
    [credited] = [one for one in await captures(ground) if one["credited"]]
    assert (credited["amount_minor"], credited["currency"]) == (total, "USDT")


async def test_the_same_logs_again_change_nothing(ground: ChainWorld) -> None:
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
