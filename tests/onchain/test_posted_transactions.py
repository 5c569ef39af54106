"""The effects of the transaction hashes that the page posts, and the limits on them."""

import pytest

from payintent.core.errors import ErrorCode, RefusedError
from payintent.onchain import pending_store as pending_transfers
from tests.support.onchain import ChainWorld, session_path
from tests.support.world import Api

pytestmark = pytest.mark.full

UNKNOWN_HASH = "0x" + 64 * "7"


async def state(ground: ChainWorld, tx_hash: str) -> str:
    [row] = await ground.world.rows(
        "SELECT state FROM chain_hint WHERE tx_hash = $1", bytes.fromhex(tx_hash[2:])
    )
    return row["state"]


async def test_a_call_after_its_deadline_fails_the_payment_when_the_revert_is_final(
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


async def test_a_different_revert_fails_the_payment_after_two_minutes_without_a_retry(
    ground: ChainWorld,
) -> None:
    payment, session = await ground.bill("USDT")
    retried, retried_session = await ground.bill("USDT")
    for billed_session in (session, retried_session):
        await ground.post(
            billed_session, await ground.pay_otherwise(billed_session, amount=1)
        )  # below the minimum
    await ground.final()
    await ground.move_clock(60)
    await ground.turn()
    assert await ground.status(payment) == "PROCESSING"
    await ground.post(retried_session, UNKNOWN_HASH)
    await ground.move_clock(61)
    await ground.turn()
    assert await ground.reason(payment) == "TX_REVERTED"
    assert await ground.status(retried) == "PROCESSING"


async def test_a_revert_does_not_fail_a_payment_that_is_also_paid_exactly(
    ground: ChainWorld,
) -> None:
    payment, session = await ground.bill("USDT")
    await ground.post(session, await ground.pay_otherwise(session, deadline=1))
    await ground.mine(3)
    await ground.pay(session)
    await ground.turn()
    assert await ground.status(payment) == "PROCESSING"
    await ground.final()
    assert await ground.status(payment) == "PAID"


async def test_a_duplicate_transaction_does_not_fail_the_payment(ground: ChainWorld) -> None:
    payment, session = await ground.bill("USDT")
    await ground.pay(session)
    second = await ground.pay_otherwise(session)
    await ground.post(session, second)
    await ground.turn()
    assert await state(ground, second) == "duplicate"
    await ground.final()
    assert await ground.status(payment) == "PAID"
    assert await ground.dispositions() == ["credited"]


async def test_a_posted_wrong_amount_fails_the_payment_after_two_minutes(
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


async def test_a_wrong_amount_does_not_fail_a_payment_with_an_exact_sighting(
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


async def test_unrelated_posted_transactions_are_ignored(ground: ChainWorld) -> None:
    payment, session = await ground.bill("USDT")
    second_payment, second_session = await ground.bill("USDT")
    await ground.turn()
    foreign_payment = await ground.pay_otherwise(second_session, deadline=1)
    approval = await ground.send(
        {"to": ground.token("USDT"), "value": "0x0", "data": "0x095ea7b3" + 128 * "0"}
    )
    for tx_hash in (foreign_payment, approval):
        await ground.post(session, tx_hash)
    await ground.final()
    await ground.move_clock(300)
    await ground.turn()
    assert {await state(ground, foreign_payment), await state(ground, approval)} == {"foreign"}
    assert await ground.status(payment) == await ground.status(second_payment) == "PROCESSING"
    assert (await ground.view(session))["status"] == "awaiting_payment"


async def test_a_session_accepts_ten_different_hashes_any_number_of_times(
    ground: ChainWorld, api: Api
) -> None:
    _, session = await ground.bill("USDT")
    path = f"{session_path(session)}/transactions"

    async def post(number: int) -> tuple[int, str]:
        body = {"tx_hash": f"0x{number:064x}", "step": "pay"}
        response = await api.send("POST", path, json=body)
        return response.status, response.json.get("code", "")

    assert [await post(number) for number in range(10)] == [(202, "")] * 10
    assert await post(10) == (409, "CONFLICT")
    assert await post(3) == (202, "")
    view = await ground.view(session)
    assert len(view["transactions"]) == 10
    await ground.pay(session)
    await ground.final()
    assert await post(3) == (410, "SESSION_GONE")


async def test_the_method_cannot_be_changed_after_a_payment_is_sighted(
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


async def test_a_posted_hash_locks_the_method_for_ten_minutes(ground: ChainWorld) -> None:
    payment, session = await ground.bill("USDT")
    await ground.post(session, UNKNOWN_HASH)
    with pytest.raises(RefusedError) as refused:
        await ground.world.select(payment, ground.world.card)
    assert refused.value.code is ErrorCode.INVALID_CHECKOUT_STATE
    await ground.move_clock(599)
    with pytest.raises(RefusedError):
        await ground.world.select(payment, ground.world.card)
    await ground.move_clock(2)
    selected = await ground.world.select(payment, ground.world.card)
    assert selected.payment.session_id != session.id


async def test_unknown_hashes_do_not_delay_the_lookup_of_other_hashes(
    ground: ChainWorld,
) -> None:
    _, session = await ground.bill("USDT")
    for digit in "12345":
        await ground.post(session, "0x" + 64 * digit)
    database = ground.world.database
    turns = [await pending_transfers.list_undecided_posted(database, "native", 2) for _ in range(4)]
    first = {transaction.tx_hash for turn in turns[:3] for transaction in turn}
    assert len(first) == 5
    assert [len(turn) for turn in turns] == [2, 2, 2, 2]


async def test_hashes_of_an_ended_session_are_not_looked_up(
    ground: ChainWorld,
) -> None:
    _, session = await ground.bill("USDT")
    await ground.post(session, UNKNOWN_HASH)
    await ground.pay(session)
    await ground.final()
    database = ground.world.database
    assert await pending_transfers.list_undecided_posted(database, "native", 10) == []
