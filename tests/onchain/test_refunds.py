"""On-chain refunds reach the payer once, even if the signer fails."""

import asyncio
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest

from payintent.accounting.ledger_check_store import find_differences
from payintent.chains import watch_store
from payintent.core import ids
from payintent.core.errors import RefusedError
from payintent.evm import abi
from payintent.evm.refund_sender import RpcRefundSender
from payintent.gateway_accounts.health import FAILURES_MAX
from payintent.onchain import refund_logs_store as refund_log_store
from payintent.onchain.operations import SetChain
from payintent.operators.operation import Actor
from payintent.payment_history.operations import ShowPayment
from payintent.privacy.operations import ErasePayer
from payintent.privacy.retention_store import prune_step
from payintent.refunds import list_store as refund_lists
from payintent.refunds.approval_operations import ApproveRefund, RejectRefund
from payintent.refunds.create import refund_case
from payintent.refunds.operations import ResendRefund
from payintent.runtime.settings import RetentionRule
from tests.support.chain_refunds import COIN, Mood, RefundWorld, refunding
from tests.support.onchain import ChainWorld
from tests.support.ports import free_port
from tests.support.timeouts import wait_until

pytestmark = pytest.mark.full

UNSEEN_S = 600
QUEUED = ("PENDING", "queued")
SENT = ("PENDING", "sent")
DONE = ("SUCCEEDED", "ended")


@pytest.fixture
async def on_ethereum(
    ethereum: ChainWorld, refund_senders: dict[str, RpcRefundSender]
) -> AsyncIterator[RefundWorld]:
    async with refunding(ethereum, refund_senders) as world:
        yield world


async def refund_and_check(world: RefundWorld, token: str) -> None:
    payment, session = await world.paid(token)
    before = await world.balance(token, world.ground.payer)
    refund = await world.ask(payment, reason="requested by customer")
    assert await world.read_state(refund) == QUEUED
    await world.turn()
    assert await world.read_state(refund) == SENT
    assert (await world.read(refund)).reference == world.signer.sent[0]
    await world.ground.chain.receipt(world.signer.sent[0])
    assert await world.balance(token, world.ground.payer) == before + session.quote.total_minor
    await world.ground.catch_up()
    await world.turn()
    assert await world.read_state(refund) == SENT  # its block is not final
    assert await world.ground.status(payment) == "PAID"
    await world.ground.final()
    assert await world.read_state(refund) == DONE
    assert (await world.read(refund)).reference == world.signer.sent[0]
    assert await world.ground.status(payment) == "REFUNDED"
    assert await world.logs() == ["settles"]
    assert len(world.signer.sent) == 1
    assert await world.ground.world.events(payment) == ["payment.completed"]
    assert await world.ground.cases() == []
    assert await find_differences(world.ground.world.database) == []


@pytest.mark.parametrize("token", ["NATIVED", "USDT"])
async def test_a_refund_is_sent_to_the_payer_and_succeeds_when_it_is_final(
    refunding: RefundWorld, token: str
) -> None:
    await refund_and_check(refunding, token)


async def test_a_token_without_return_values_and_with_six_decimals_is_refunded(
    on_ethereum: RefundWorld,
) -> None:
    await refund_and_check(on_ethereum, "USDT")


async def test_partial_refunds_add_up_to_the_full_amount(refunding: RefundWorld) -> None:
    payment, session = await refunding.paid()
    second_payment, _ = await refunding.paid("USDT")
    before = await refunding.balance("NATIVED", refunding.ground.payer)
    parts = [await refunding.ask(payment, "10.00"), await refunding.ask(payment, "0.01")]
    second_refund = await refunding.ask(second_payment, "5.00")
    await refunding.turn()
    await refunding.ground.final()
    assert await refunding.ground.status(payment) == "PARTIALLY_REFUNDED"
    assert await refunding.ground.status(second_payment) == "PARTIALLY_REFUNDED"
    remainder = await refunding.ask(payment)
    await refunding.turn()
    await refunding.ground.final()
    assert await refunding.ground.status(payment) == "REFUNDED"
    assert [
        await refunding.read_state(partial) for partial in (*parts, remainder, second_refund)
    ] == [DONE] * 4
    after = await refunding.balance("NATIVED", refunding.ground.payer)
    assert after == before + session.quote.total_minor


async def test_a_refund_is_paid_once_if_the_response_of_the_signer_is_lost(
    refunding: RefundWorld,
) -> None:
    payment, session = await refunding.paid()
    before = await refunding.balance("NATIVED", refunding.ground.payer)
    refund = await refunding.ask(payment)
    refunding.signer.mood = Mood.LOSES
    await refunding.turn()
    await wait_until(lambda: refunding.signer.sent, "the signer has sent the transaction")
    await refunding.ground.chain.receipt(refunding.signer.sent[0])
    stored = await refunding.read(refund)
    assert (await refunding.read_state(refund), stored.reference) == (SENT, None)
    await refunding.ground.move_clock(UNSEEN_S)
    await refunding.turn()
    assert await refunding.read_state(refund) == SENT  # the contract knows the refund
    await refunding.ground.final()
    assert await refunding.read_state(refund) == DONE
    assert (await refunding.read(refund)).reference == refunding.signer.sent[0]
    after = await refunding.balance("NATIVED", refunding.ground.payer)
    assert after == before + session.quote.total_minor


@pytest.mark.parametrize("mood", [Mood.SILENT, Mood.REFUSES])
async def test_a_refund_is_resent_if_its_transaction_does_not_appear(
    refunding: RefundWorld, mood: Mood
) -> None:
    payment, _ = await refunding.paid()
    refund = await refunding.ask(payment)
    refunding.signer.mood = mood
    await refunding.turn()
    await refunding.turn()
    assert await refunding.read_state(refund) == SENT
    refunding.signer.mood = Mood.SENDS
    await refunding.ground.move_clock(UNSEEN_S)
    await refunding.turn()
    assert await refunding.read_state(refund) == QUEUED
    await refunding.turn()
    await refunding.ground.final()
    assert await refunding.read_state(refund) == DONE
    assert len(refunding.signer.sent) == 1


async def test_a_refund_is_queued_again_if_a_worker_died_before_it_called_the_signer(
    refunding: RefundWorld,
) -> None:
    payment, _ = await refunding.paid()
    refund = await refunding.ask(payment)
    await refunding.ground.world.rows("UPDATE refund SET step = 'sent', sent_at = clock()")
    await refunding.turn()
    assert await refunding.read_state(refund) == QUEUED
    await refunding.turn()
    await refunding.ground.final()
    assert await refunding.read_state(refund) == DONE


async def test_a_repeated_refund_is_rejected_by_the_contract_and_paid_once(
    refunding: RefundWorld,
) -> None:
    payment, session = await refunding.paid()
    before = await refunding.balance("NATIVED", refunding.ground.payer)
    refund = await refunding.ask(payment)
    for _ in range(3):  # as if the transaction had been considered lost
        await refunding.turn()
        assert await refunding.read_state(refund) == SENT
        await refunding.ground.world.rows("UPDATE refund SET step = 'queued'")
    await refunding.ground.final()
    assert await refunding.read_state(refund) == DONE
    assert len(refunding.signer.sent) == 1
    after = await refunding.balance("NATIVED", refunding.ground.payer)
    assert after == before + session.quote.total_minor


async def request_unsendable_refund(world: RefundWorld, symbol: str = "NATIVED") -> Any:
    """Request a refund that cannot be sent, and was certainly not sent."""
    payment, _ = await world.paid(symbol)
    refund = await world.ask(payment)
    await world.turn()
    assert await world.read_state(refund) == QUEUED
    assert await world.ground.world.rows("SELECT FROM chain_refund_try") == []
    return refund


async def assert_sent(world: RefundWorld, refund: Any) -> None:
    await world.turn()
    await world.ground.final()
    assert await world.read_state(refund) == DONE
    assert len(world.signer.sent) == 1


async def test_a_refund_waits_for_an_unavailable_signer(refunding: RefundWorld) -> None:
    refunding.signer.away = True
    refund = await request_unsendable_refund(refunding)
    refunding.signer.away = False
    await assert_sent(refunding, refund)


async def test_a_refund_waits_until_the_refunder_has_coins(refunding: RefundWorld) -> None:
    set_balance = (refunding.ground.chain.ask, "anvil_setBalance", refunding.refunder)
    await set_balance[0](*set_balance[1:], hex(COIN))
    refund = await request_unsendable_refund(refunding)
    await set_balance[0](*set_balance[1:], hex(100 * COIN))
    await assert_sent(refunding, refund)


async def test_a_refund_waits_until_the_refunder_has_an_allowance(refunding: RefundWorld) -> None:
    contract = bytes.fromhex(refunding.ground.deployment.contract_address[2:])

    async def allow(amount: int) -> None:
        data = f"0x{abi.encode_approve(contract, amount).hex()}"
        step = {"to": refunding.ground.token("USDT"), "value": "0x0", "data": data}
        await refunding.ground.send(step, refunding.refunder)

    await allow(0)
    refund = await request_unsendable_refund(refunding, "USDT")
    await allow(100 * COIN)
    await assert_sent(refunding, refund)


async def test_a_refund_waits_if_the_signer_is_on_a_different_chain(
    refunding: RefundWorld,
) -> None:
    await refunding.ground.world.rows("UPDATE chain SET network_id = 7 WHERE slug = 'native'")
    refund = await request_unsendable_refund(refunding)
    await refunding.ground.world.rows("UPDATE chain SET network_id = 612055 WHERE slug = 'native'")
    await assert_sent(refunding, refund)


async def test_a_refund_waits_if_the_signer_lacks_the_key_of_the_refunder(
    refunding: RefundWorld,
) -> None:
    stranger = "0x" + 40 * "1"
    await refunding.ground.chain.ask("anvil_setBalance", stranger, hex(100 * COIN))
    await refunding.ground.world.perform(SetChain(chain="native", refunder=stranger))
    refund = await request_unsendable_refund(refunding)
    operation = SetChain(chain="native", refunder=refunding.refunder)
    chain = await refunding.ground.world.perform(operation)
    assert [abi.to_hex(address) for address in chain.refunders] == [stranger, refunding.refunder]
    await assert_sent(refunding, refund)


async def test_only_an_unresponsive_signer_counts_as_an_outage(refunding: RefundWorld) -> None:
    """Otherwise, a payer whose refund the token rejects would block all refunds."""
    stranger = "0x" + 40 * "1"
    await refunding.ground.world.perform(SetChain(chain="native", refunder=stranger))
    await request_unsendable_refund(refunding)
    outages = "SELECT 1 FROM gateway_outage"
    for _ in range(FAILURES_MAX):
        await refunding.turn()
    assert await refunding.ground.world.rows(outages) == []
    refunding.signer.away = True
    for _ in range(FAILURES_MAX):
        await refunding.turn()
    assert len(await refunding.ground.world.rows(outages)) == 1


async def test_coins_are_not_sent_if_the_contract_has_no_code(refunding: RefundWorld) -> None:
    contract = refunding.ground.deployment.contract_address
    payment, _ = await refunding.paid()
    code = await refunding.ground.chain.ask("eth_getCode", contract, "latest")
    await refunding.ground.chain.ask("anvil_setCode", contract, "0x")
    refund = await refunding.ask(payment)
    await refunding.turn()
    assert await refunding.read_state(refund) == QUEUED
    await refunding.ground.chain.ask("anvil_setCode", contract, code)
    await assert_sent(refunding, refund)


@pytest.mark.parametrize("missing", ["signer", "refunder"])
async def test_a_refund_waits_if_the_signer_or_the_refunder_is_missing(
    refunding: RefundWorld, refund_senders: dict[str, RpcRefundSender], missing: str
) -> None:
    senders = dict(refund_senders)
    if missing == "signer":
        refund_senders.clear()
    else:
        await refunding.ground.world.rows("UPDATE chain SET refunders = '{}'")
    refund = await request_unsendable_refund(refunding)
    refund_senders |= senders
    await refunding.ground.world.perform(SetChain(chain="native", refunder=refunding.refunder))
    await assert_sent(refunding, refund)


async def test_a_refund_is_always_sent_by_its_first_sender(refunding: RefundWorld) -> None:
    """A new sender would pay twice if the first transaction is mined later."""
    payment, _ = await refunding.paid()
    refund = await refunding.ask(payment)
    refunding.signer.mood = Mood.SILENT
    await refunding.turn()
    refunding.signer.mood = Mood.SENDS
    successor = (await refunding.accounts())[7]
    await refunding.ground.world.perform(SetChain(chain="native", refunder=successor))
    await refunding.ground.move_clock(UNSEEN_S)
    await refunding.turn()
    await refunding.turn()
    transaction = await refunding.ground.chain.ask(
        "eth_getTransactionByHash", refunding.signer.sent[0]
    )
    assert transaction["from"] == refunding.refunder
    await refunding.ground.final()
    assert await refunding.read_state(refund) == DONE
    second_payment, _ = await refunding.paid()
    await refunding.ask(second_payment)
    await refunding.turn()
    transaction = await refunding.ground.chain.ask(
        "eth_getTransactionByHash", refunding.signer.sent[1]
    )
    assert transaction["from"] == successor
    await refunding.ground.final()
    assert await refunding.ground.status(second_payment) == "REFUNDED"


async def test_a_refund_reverted_by_a_reorg_is_resent(
    refunding: RefundWorld,
) -> None:
    payment, session = await refunding.paid()
    before = await refunding.balance("NATIVED", refunding.ground.payer)
    refund = await refunding.ask(payment)
    await refunding.turn()
    await refunding.ground.reorg(1)
    assert await refunding.balance("NATIVED", refunding.ground.payer) == before
    # The node may have returned the transaction to its pool, and would mine it again.
    await refunding.ground.chain.ask("anvil_dropAllTransactions")
    await refunding.ground.mine(3)
    await refunding.ground.catch_up()
    await refunding.turn()
    assert await refunding.read_state(refund) == SENT
    await refunding.ground.pass_time(UNSEEN_S)
    await refunding.turn()
    await refunding.turn()
    await refunding.ground.final()
    assert await refunding.read_state(refund) == DONE
    assert len(refunding.signer.sent) == 2
    after = await refunding.balance("NATIVED", refunding.ground.payer)
    assert after == before + session.quote.total_minor


async def test_a_reverted_refund_is_resent_when_the_revert_is_final(
    refunding: RefundWorld,
) -> None:
    payment, session = await refunding.paid()
    refund = await refunding.ask(payment)
    refunding.signer.mood = Mood.SILENT
    await refunding.turn()
    refunding.signer.mood = Mood.SENDS
    reverted = await refunding.ground.pay_otherwise(session, deadline=1)
    await refunding.ground.world.rows(
        "UPDATE chain_refund_try SET tx_hash = $1", bytes.fromhex(reverted[2:])
    )
    await refunding.ground.catch_up()
    await refunding.turn()
    assert await refunding.read_state(refund) == SENT
    await refunding.ground.final()
    await refunding.turn()
    assert await refunding.read_state(refund) == QUEUED
    await assert_sent(refunding, refund)


async def test_a_refund_reverted_three_times_opens_a_case_and_needs_a_manual_resend(
    refunding: RefundWorld,
) -> None:
    payment, session = await refunding.paid()
    refund = await refunding.ask(payment)
    cases: list[list[str]] = []
    for _ in range(3):
        await refunding.revert(session)
        cases.append(await refunding.ground.cases())
    assert cases == [[], [], ["RECONCILIATION"]]
    await refunding.ground.move_clock(2 * UNSEEN_S)
    for _ in range(2):
        await refunding.turn()
    assert refunding.signer.sent == []
    assert await refunding.read_state(refund) == SENT
    [row] = await refunding.ground.world.rows("SELECT refund_id FROM money_case")
    assert row["refund_id"] == refund.id
    await refunding.ground.world.perform(
        ResendRefund(refund_id=ids.format_id(ids.REFUND, refund.id), note="it has gas again")
    )
    await refunding.ground.move_clock(UNSEEN_S)
    await refunding.turn()
    assert await refunding.read_state(refund) == QUEUED, "the contract does not know the refund"
    await assert_sent(refunding, refund)


async def test_a_refund_to_a_destination_that_burns_gas_is_not_sent(refunding: RefundWorld) -> None:
    burner = "0x" + 40 * "9"
    loop = "0x6200ea605b6001900380600457" + "00"  # 60,000 iterations
    await refunding.ground.chain.ask("anvil_setCode", burner, loop)
    payment, _ = await refunding.paid()
    refund = await refunding.ask(payment, destination=burner)
    await approve(refunding)
    await refunding.turn()
    assert await refunding.read_state(refund) == QUEUED
    assert refunding.signer.sent == []


async def test_a_refund_can_be_claimed_for_only_one_sender(refunding: RefundWorld) -> None:
    database, refund_id = refunding.ground.world.service.database, uuid4()
    claims = [
        await refund_log_store.claim_for_sender(database, refund_id, 20 * bytes([digit]))
        for digit in (1, 2, 1)
    ]
    assert claims == [True, False, True]


async def test_a_refund_is_not_resent_if_no_endpoint_responds(
    ground: ChainWorld, refund_senders: dict[str, RpcRefundSender]
) -> None:
    unreachable = f"http://127.0.0.1:{free_port()}"
    async with refunding(ground, refund_senders, [unreachable]) as world:
        payment, _ = await world.paid()
        refund = await world.ask(payment)
        await world.turn()
        await ground.move_clock(2 * UNSEEN_S)
        await world.turn()
        assert await world.read_state(refund) == SENT
        assert len(world.signer.sent) == 1
        await ground.final()
        assert await world.read_state(refund) == DONE


async def test_a_refund_to_a_different_destination_needs_approval(refunding: RefundWorld) -> None:
    payment, session = await refunding.paid("USDT")
    destination = "0x" + 40 * "9"
    refund = await refunding.ask(payment, destination=destination)
    await refunding.turn()
    assert await refunding.read_state(refund) == ("PENDING", "approval")
    assert refunding.signer.sent == []
    await approve(refunding)
    await refunding.turn()
    await refunding.ground.final()
    assert await refunding.read_state(refund) == DONE
    assert await refunding.balance("USDT", destination) == session.quote.total_minor


@pytest.mark.parametrize("threshold", ["25.49", "25.5"])
async def test_a_refund_above_the_threshold_needs_approval(
    refunding: RefundWorld, threshold: str
) -> None:
    payment, _ = await refunding.paid()
    chain = await refunding.ground.world.perform(
        SetChain(chain="native", refund_approval_above=threshold)
    )
    assert chain.refund_approval_above == Decimal(threshold)
    refund = await refunding.ask(payment)
    needs_approval = Decimal(threshold) < Decimal("25.50")
    assert await refunding.read_state(refund) == (
        "PENDING",
        "approval" if needs_approval else "queued",
    )


async def test_the_approval_threshold_applies_to_the_sum_of_a_day(
    refunding: RefundWorld,
) -> None:
    world = refunding.ground.world
    payments = [(await refunding.paid(symbol))[0] for symbol in ("NATIVED", "USDT")]
    await world.perform(SetChain(chain="native", refund_approval_above="30"))

    async def steps(*amounts: str) -> list[str]:
        refunds = await asyncio.gather(
            *(
                refunding.ask(payment, amount)
                for payment, amount in zip(payments, amounts, strict=False)
            )
        )
        return sorted([(await refunding.read(refund)).step.value for refund in refunds])

    assert await steps("16", "16") == ["approval", "queued"], "together they are 32"
    [waiting] = await world.rows("SELECT id FROM refund WHERE step = 'approval'")
    refund_id = ids.format_id(ids.REFUND, waiting["id"])
    await world.perform(RejectRefund(refund_id=refund_id, note="asked for twice"))
    assert await steps("4") == ["queued"], "rejected refunds do not count"
    assert await steps("5", "9") == ["approval", "queued"]
    await world.perform(SetChain(chain="native", refund_approval_above="20"))
    assert await steps("0.1") == ["approval"]
    await world.rows("UPDATE refund SET approved_by = 'bob' WHERE step = 'queued'")
    assert await steps("0.1") == ["queued"], "approved refunds do not count"
    await world.rows("UPDATE refund SET approved_by = NULL WHERE step = 'queued'")
    assert await steps("0.1") == ["approval"]
    async with world.database.transaction() as tx:
        sums = [
            await refund_lists.sum_unapproved_on_chain(tx, merchant_id, chain)
            for merchant_id, chain in (
                (world.merchant_id, "native"),
                (world.merchant_id + 1, "native"),
                (None, "native"),
                (world.merchant_id, "bsc"),
            )
        ]
    assert sums[0] > 20
    assert sums[1:] == [0, 0, 0], "each merchant and each chain has its own threshold"
    await refunding.ground.move_clock(24 * 3600 + 60)
    assert await steps("0.1") == ["queued"]


async def test_a_refund_in_a_token_that_is_no_longer_known_needs_approval(
    refunding: RefundWorld,
) -> None:
    payment, _ = await refunding.paid("USDT")
    await refunding.ground.world.rows(
        "UPDATE chain_token SET address = decode(repeat('33', 20), 'hex') WHERE symbol = 'USDT'"
    )
    refund = await refunding.ask(payment, "0.01")
    assert await refunding.read_state(refund) == ("PENDING", "approval")
    await approve(refunding)
    await refunding.turn()
    await refunding.ground.final()
    assert await refunding.read_state(refund) == DONE


@pytest.mark.parametrize("target", ["contract", "refunder"])
async def test_a_refund_to_the_contract_or_the_refunder_is_declined(
    refunding: RefundWorld, target: str
) -> None:
    payment, _ = await refunding.paid()
    addresses = {
        "contract": refunding.ground.deployment.contract_address,
        "refunder": refunding.refunder,
    }
    refund = await refunding.ask(payment, destination=addresses[target])
    await approve(refunding)
    await refunding.turn()
    declined = await refunding.read(refund)
    assert (declined.status, declined.failure_reason) == ("FAILED", "DECLINED")
    retry = await refunding.ask(payment)
    await assert_sent(refunding, retry)


async def test_money_with_an_unknown_uuid_is_refunded_to_its_payer(
    refunding: RefundWorld,
) -> None:
    ground = refunding.ground
    _, session = await ground.bill("USDT")
    amount = session.quote.total_minor
    await ground.pay_otherwise(session, uuid=ground.world.id_generator.new_session_id().bytes)
    await ground.final()
    before = await refunding.balance("USDT", ground.payer)
    [case] = await ground.world.rows("SELECT id, capture_id FROM money_case")
    world = ground.world
    async with world.database.transaction() as tx:
        refund = await refund_case(tx, case["id"], case["capture_id"], "ann")
    assert refund.destination == ground.payer.lower()
    await refunding.turn()
    await ground.final()
    assert await refunding.read_state(refund) == DONE
    assert await refunding.balance("USDT", ground.payer) == before + amount
    [closed_case] = await ground.world.rows("SELECT status, note FROM money_case")
    assert closed_case["status"] == "REFUNDED"
    assert ids.format_id(ids.REFUND, refund.id) in closed_case["note"]


async def test_a_chain_is_busy_until_its_refunds_have_ended(refunding: RefundWorld) -> None:
    database = refunding.ground.world.database
    payment, _ = await refunding.paid()
    assert not await watch_store.is_busy(database, "native")
    await refunding.ask(payment)
    await refunding.turn()
    assert await watch_store.is_busy(database, "native")
    assert not await watch_store.is_busy(database, "bsc")
    await refunding.ground.final()
    assert not await watch_store.is_busy(database, "native")


async def approve(world: RefundWorld) -> None:
    """Approve the pending refund as a second operator."""
    await world.ground.world.rows(
        "UPDATE refund SET step = 'queued', approved_by = 'bob', next_at = clock() "
        "WHERE step = 'approval'"
    )


async def test_a_refund_needs_a_destination_if_the_payer_address_was_deleted(
    refunding: RefundWorld,
) -> None:
    retention = {RetentionRule.PAYER_ADDRESSES: 90}
    world, database = refunding.ground.world, refunding.ground.world.database
    payment, session = await refunding.paid()
    second_payment, _ = await refunding.paid()
    pending_refund = await refunding.ask(second_payment, "1.00")
    await world.rows("UPDATE chain_receipt SET final_at = clock() - interval '91 days'")
    assert await prune_step(database, retention, 10) is False
    rows = await world.rows("SELECT session_id, payer IS NULL AS is_deleted FROM chain_receipt")
    assert {row["session_id"]: row["is_deleted"] for row in rows}[session.id] is True
    assert sorted(row["is_deleted"] for row in rows) == [False, True]
    with pytest.raises(RefusedError, match="address is no longer stored"):
        await refunding.ask(payment)
    destination = refunding.ground.payer
    refund = await refunding.ask(payment, destination=destination)
    assert await refunding.read_state(refund) == ("PENDING", "approval")
    refund_id = ids.format_id(ids.REFUND, refund.id)
    with pytest.raises(RefusedError, match="note"):
        await world.service.run_operation(
            ApproveRefund(refund_id=refund_id), Actor("bob", "ticket")
        )
    approval = ApproveRefund(refund_id=refund_id, note="the buyer signed for it")
    await world.service.run_operation(approval, Actor("bob", "ticket"))
    view = await world.perform(ShowPayment(payment_id=ids.format_id(ids.PAYMENT, payment.id)))
    assert "not kept" not in str(view)
    before = await refunding.balance("NATIVED", destination)
    await refunding.turn()
    await refunding.ground.final()
    assert (await refunding.read_state(refund), await refunding.read_state(pending_refund)) == (
        DONE,
        DONE,
    )
    after = await refunding.balance("NATIVED", destination)
    assert after > before
    assert await find_differences(database) == []


async def test_an_erasure_deletes_the_payer_addresses_a_day_after_the_last_refund(
    refunding: RefundWorld,
) -> None:
    world = refunding.ground.world
    payment, _ = await refunding.paid()
    erasure = ErasePayer(merchant_id=payment.merchant_id, payer_uid=payment.payer_uid)
    refund = await refunding.ask(payment, "1.00")
    with pytest.raises(RefusedError, match="has a pending refund"):
        await world.perform(erasure)
    await refunding.turn()
    await refunding.ground.final()
    assert await refunding.read_state(refund) == DONE
    with pytest.raises(RefusedError, match="refund from the last 24 hours"):
        await world.perform(erasure)
    address = refunding.ground.payer[2:].lower()
    assert await _list_tables_with_address(refunding, address) == {
        "chain_receipt",
        "refund",
        "chain_refund",
    }
    await world.move_clock(25 * 3600)
    assert (await world.perform(erasure)).payments == 1
    assert await _list_tables_with_address(refunding, address) == set()
    assert await find_differences(world.database) == []
    with pytest.raises(RefusedError, match="address is no longer stored"):
        await refunding.ask(payment)
    view = await world.perform(ShowPayment(payment_id=ids.format_id(ids.PAYMENT, payment.id)))
    assert address not in str(view).lower()


async def _list_tables_with_address(refunding: RefundWorld, address: str) -> set[str]:
    """Return the tables with an address in any column."""
    world = refunding.ground.world
    tables = await world.rows(
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
    )
    matches: set[str] = set()
    for table in [row["relname"] for row in tables]:
        rows = await world.rows(
            f"SELECT 1 FROM {table} t WHERE lower(t::text) LIKE $1", f"%{address}%"
        )
        if rows:
            matches.add(table)
    return matches
