"""The effects, and the limits, of transaction hashes that the page posts."""

import pytest

from payintent.core.errors import ErrorCode, RefusedError
from payintent.onchain import pending_store as pending_transfers
from tests.support.onchain import ChainWorld, session_path
from tests.support.world import Api

pytestmark = pytest.mark.full

NEVER = "0x" + 64 * "7"


async def state(ground: ChainWorld, tx_hash: str) -> str:
    [row] = await ground.world.rows(
        "SELECT state FROM chain_hint WHERE tx_hash = $1", bytes.fromhex(tx_hash[2:])
    )
    return row["state"]


async def test_a_call_after_its_deadline_fails_the_payment_as_soon_as_that_is_final(
    ground: ChainWorld,
) -> None:
    payment, session = await ground.bill("USDT")
    tx_hash = await ground.pay_otherwise(session, deadline=1)
    await ground.post(session, tx_hash)
    await ground.turn()
    assert await state(ground, tx_hash) == "reverted"
    assert await ground.status(payment) == "PROCESSING"
    await ground.final()
    assert await ground.status(payment) == "FAILED"
    assert await ground.reason(payment) == "TX_REVERTED"
    assert await ground.world.events(payment) == ["payment.failed"]


async def test_another_revert_fails_it_after_two_minutes_without_another_attempt(
    ground: ChainWorld,
) -> None:
    payment, session = await ground.bill("USDT")
    other, other_session = await ground.bill("USDT")
    for one in (session, other_session):
        await ground.post(one, await ground.pay_otherwise(one, amount=1))  # below the minimum
    await ground.final()
    await ground.move_clock(60)
    await ground.turn()
    assert await ground.status(payment) == "PROCESSING"
    await ground.post(other_session, NEVER)
    await ground.move_clock(61)
    await ground.turn()
    assert await ground.reason(payment) == "TX_REVERTED"
    assert await ground.status(other) == "PROCESSING"


async def test_a_revert_ends_no_payment_that_was_paid_exactly_as_well(ground: ChainWorld) -> None:
    payment, session = await ground.bill("USDT")
    await ground.post(session, await ground.pay_otherwise(session, deadline=1))
    await ground.mine(3)
    await ground.pay(session)
    await ground.turn()
    assert await ground.status(payment) == "PROCESSING"
    await ground.final()
    assert await ground.status(payment) == "PAID"


async def test_a_second_click_is_no_failure(ground: ChainWorld) -> None:
    payment, session = await ground.bill("USDT")
    await ground.pay(session)
    second = await ground.pay_otherwise(session)
    await ground.post(session, second)
    await ground.turn()
    assert await state(ground, second) == "duplicate"
    await ground.final()
    assert await ground.status(payment) == "PAID"
    assert await ground.dispositions() == ["credited"]


async def test_a_wrong_amount_that_the_buyer_posted_fails_the_payment_after_two_minutes(
    ground: ChainWorld,
) -> None:
    payment, session = await ground.bill("USDT")
    tx_hash = await ground.pay_otherwise(session, amount=10**17)
    await ground.post(session, tx_hash)
    await ground.final()
    await ground.move_clock(60)
    await ground.turn()
    assert await ground.status(payment) == "PROCESSING"
    await ground.move_clock(61)
    await ground.turn()
    assert await ground.reason(payment) == "AMOUNT_MISMATCH"
    assert await ground.world.cases(payment) == ["AMOUNT_MISMATCH"]


async def test_a_wrong_amount_ends_nothing_while_the_right_one_is_in_sight(
    ground: ChainWorld,
) -> None:
    payment, session = await ground.bill("USDT")
    await ground.post(session, await ground.pay_otherwise(session, amount=10**17))
    await ground.final()
    await ground.move_clock(121)
    await ground.pay(session)
    await ground.turn()
    assert await ground.status(payment) == "PROCESSING"
    await ground.final()
    assert await ground.status(payment) == "PAID"


async def test_a_transaction_of_something_else_means_nothing(ground: ChainWorld) -> None:
    payment, session = await ground.bill("USDT")
    other, other_session = await ground.bill("USDT")
    await ground.turn()
    of_other = await ground.pay_otherwise(other_session, deadline=1)
    approval = await ground.send(
        {"to": ground.token("USDT"), "value": "0x0", "data": "0x095ea7b3" + 128 * "0"}
    )
    for tx_hash in (of_other, approval):
        await ground.post(session, tx_hash)
    await ground.final()
    await ground.move_clock(300)
    await ground.turn()
    assert {await state(ground, of_other), await state(ground, approval)} == {"foreign"}
    assert await ground.status(payment) == await ground.status(other) == "PROCESSING"
    assert (await ground.view(session))["status"] == "awaiting_payment"


async def test_a_session_takes_ten_hashes_and_any_of_them_again(
    ground: ChainWorld, api: Api
) -> None:
    _, session = await ground.bill("USDT")
    path = f"{session_path(session)}/transactions"

    async def post(number: int) -> tuple[int, str]:
        body = {"tx_hash": f"0x{number:064x}", "step": "pay"}
        told = await api.send("POST", path, json=body)
        return told.status, told.json.get("code", "")

    assert [await post(number) for number in range(10)] == [(202, "")] * 10
    assert await post(10) == (409, "CONFLICT")
    assert await post(3) == (202, "")
    view = await ground.view(session)
    assert len(view["transactions"]) == 10
    await ground.pay(session)
    await ground.final()
    assert await post(3) == (410, "SESSION_GONE")


async def test_the_method_cannot_be_changed_while_a_payment_is_in_sight(
    ground: ChainWorld,
) -> None:
    payment, session = await ground.bill("USDT")
    await ground.pay(session)
    await ground.turn()
    with pytest.raises(RefusedError) as refused:
        await ground.world.select(payment, ground.world.card)
    assert refused.value.code is ErrorCode.INVALID_CHECKOUT_STATE
    await ground.final()
    with pytest.raises(RefusedError) as refused:
        await ground.world.select(payment, ground.world.card)
    assert refused.value.code is ErrorCode.INVALID_CHECKOUT_STATE
    assert await ground.status(payment) == "PAID"


async def test_a_posted_hash_holds_the_method_for_ten_minutes(ground: ChainWorld) -> None:
    payment, session = await ground.bill("USDT")
    await ground.post(session, NEVER)
    with pytest.raises(RefusedError) as refused:
        await ground.world.select(payment, ground.world.card)
    assert refused.value.code is ErrorCode.INVALID_CHECKOUT_STATE
    await ground.move_clock(599)
    with pytest.raises(RefusedError):
        await ground.world.select(payment, ground.world.card)
    await ground.move_clock(2)
    selected = await ground.world.select(payment, ground.world.card)
    assert selected.payment.session_id != session.id


async def test_hashes_that_nobody_knows_do_not_keep_others_from_being_looked_up(
    ground: ChainWorld,
) -> None:
    _, session = await ground.bill("USDT")
    for digit in "12345":
        await ground.post(session, "0x" + 64 * digit)
    database = ground.world.database
    turns = [await pending_transfers.list_undecided_posted(database, "native", 2) for _ in range(4)]
    first = {one.tx_hash for turn in turns[:3] for one in turn}
    assert len(first) == 5
    assert [len(turn) for turn in turns] == [2, 2, 2, 2]


async def test_hashes_of_a_session_that_has_ended_are_looked_up_no_more(
    ground: ChainWorld,
) -> None:
    _, session = await ground.bill("USDT")
    await ground.post(session, NEVER)
    await ground.pay(session)
    await ground.final()
    database = ground.world.database
    assert await pending_transfers.list_undecided_posted(database, "native", 10) == []
