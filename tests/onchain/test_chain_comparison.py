"""A contract's final logs are compared daily with captures, the ledger and its receiver."""

from dataclasses import replace
from typing import Any

import pytest
from pydantic import SecretStr

from payintent.accounting.payouts_operations import RecordGatewayPayout
from payintent.core.errors import ChainUnavailableError
from payintent.db.locks import hold_advisory_lock
from payintent.evm import abi
from payintent.evm.chain_reader import RpcChainReader
from payintent.reconciliation import chain_comparison, contract_logs
from payintent.reconciliation import compare as difference_cases
from payintent.reconciliation.chain_comparison import compare_chain
from payintent.reconciliation.operations import (
    ListReconciliationRuns,
    RetryReconciliationRun,
    RunDetails,
)
from payintent.worker import reconcile_chains
from tests.support.chain_comparison import (
    case_subjects,
    compare_due,
    make_comparison,
    newest_run,
    next_day,
)
from tests.support.onchain import ChainWorld
from tests.support.refunding import RefundWorld

pytestmark = pytest.mark.full

_TAKEN = "USDT"


async def _compare(ground: ChainWorld) -> RunDetails:
    """Run the due comparison; return the newest run."""
    await compare_due(ground)
    return await newest_run(ground)


async def _next_day(ground: ChainWorld) -> RunDetails:
    await ground.mine(3)
    await ground.turn()
    await next_day(ground)
    return await _compare(ground)


async def _paid(ground: ChainWorld, token: str = _TAKEN) -> None:
    """Create and pay a payment, and make it final."""
    payment, session = await ground.bill(token)
    await ground.pay(session)
    await ground.final()
    assert await ground.status(payment) == "PAID"


def _balance(shown: RunDetails, token: str = _TAKEN) -> tuple[Any, ...]:
    [found] = [balance for balance in shown.balances if balance.currency == token]
    return found.receiver, found.refunders, found.ledger, found.expected


async def test_logs_captures_ledger_and_balance_that_agree_are_a_matched_run(
    refunding: RefundWorld,
) -> None:
    ground = refunding.ground
    payment, _ = await refunding.paid("NATIVED")
    await _paid(ground)
    await refunding.ask(payment, "10.00")
    await refunding.turn()
    await ground.final()
    shown = await _compare(ground)
    assert (shown.run.status, shown.run.opened, shown.run.source) == ("matched", 0, "chain")
    sums = {(side.type, side.currency): side for side in shown.sums}
    assert set(sums) == {("payment", "NATIVED"), ("payment", "USDT"), ("refund", "NATIVED")}
    for side in shown.sums:
        assert (side.lines, side.records) == (1, 1)
        assert side.gateway == side.service == side.ledger == side.merchants
    receiver, _, ledger, expected = _balance(shown)
    assert (receiver, expected) == (ledger, None)
    assert await case_subjects(ground) == []


async def test_a_contract_is_compared_once_a_day_and_each_block_once(ground: ChainWorld) -> None:
    await _paid(ground)
    first = await _compare(ground)
    assert (await _compare(ground)).run == first.run
    await _paid(ground)
    second = await _next_day(ground)
    assert second.run.id != first.run.id
    assert [(side.lines, side.gateway) for side in second.sums] == [(1, first.sums[0].gateway)]
    blocks = await ground.world.rows(
        "SELECT first_block, last_block FROM reconciliation_blocks ORDER BY first_block"
    )
    assert blocks[1]["first_block"] == blocks[0]["last_block"] + 1


async def test_a_log_that_we_have_no_capture_of_is_a_case(ground: ChainWorld) -> None:
    await _paid(ground)
    await ground.world.rows("ALTER TABLE capture DROP CONSTRAINT capture_receipt_id_fkey")
    await ground.world.rows("ALTER TABLE money_case DROP CONSTRAINT money_case_capture_id_fkey")
    await ground.world.rows("DELETE FROM capture")
    shown = await _compare(ground)
    assert (shown.run.status, shown.run.opened) == ("differs", 1)
    [side] = shown.sums
    assert (side.lines, side.records, side.service) == (1, 0, "0")
    [subject] = await case_subjects(ground)
    assert subject.startswith("native payment 0x")
    assert subject.endswith(f": extra, {side.gateway} USDT")


async def test_a_capture_that_the_chain_has_no_log_of_is_a_case(ground: ChainWorld) -> None:
    await _paid(ground)
    await ground.world.rows("UPDATE chain_receipt SET log_index = log_index + 7")
    await ground.world.rows(
        "UPDATE capture SET reference = regexp_replace(reference, ':.*', ':77')"
    )
    shown = await _compare(ground)
    assert (shown.run.status, shown.run.opened) == ("differs", 2)
    there, here = await case_subjects(ground)
    assert (": extra, " in there, ": missing, " in here) == (True, True)
    assert ":77" in here


async def test_more_differences_than_a_day_can_have_fail_the_run_and_open_no_case(
    ground: ChainWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(difference_cases, "DIFFERENCES_MAX", 1)
    await _paid(ground)
    await ground.world.rows("UPDATE chain_receipt SET log_index = log_index + 7")
    await ground.world.rows(
        "UPDATE capture SET reference = regexp_replace(reference, ':.*', ':77')"
    )
    failed = (await _compare(ground)).run
    assert (failed.status, failed.opened) == ("failed", 0)
    assert failed.problem.startswith("2 differences are too many;")
    assert await case_subjects(ground) == []


@pytest.mark.parametrize("changed", ["amount", "debit"])
async def test_an_entry_of_the_ledger_that_is_off_is_a_case(
    ground: ChainWorld, changed: str
) -> None:
    await _paid(ground)
    await ground.world.rows("ALTER TABLE ledger_entry DISABLE TRIGGER USER")
    value = {"amount": "amount - 1", "debit": "'gateway_clearing:1'"}[changed]
    await ground.world.rows(f"UPDATE ledger_entry SET {changed} = {value} WHERE leg = 'payable'")
    shown = await _compare(ground)
    assert (shown.run.status, shown.run.opened) == ("differs", 1)
    [subject] = await case_subjects(ground)
    assert ": ledger, " in subject
    assert "in the ledger" in subject


async def test_a_refund_whose_entry_is_off_is_a_case(refunding: RefundWorld) -> None:
    payment, _ = await refunding.paid("USDT")
    await refunding.ask(payment)
    await refunding.turn()
    await refunding.ground.final()
    await refunding.ground.world.rows("ALTER TABLE ledger_entry DISABLE TRIGGER USER")
    await refunding.ground.world.rows(
        "UPDATE ledger_entry SET amount = amount + 1 WHERE fact = 'refund_done'"
    )
    shown = await _compare(refunding.ground)
    assert (shown.run.status, shown.run.opened) == ("differs", 1)
    [subject] = await case_subjects(refunding.ground)
    assert subject.startswith("native refund ")


async def test_a_refund_that_has_not_taken_effect_waits_for_the_next_run(
    refunding: RefundWorld,
) -> None:
    ground = refunding.ground
    payment, _ = await refunding.paid("USDT")
    await refunding.ask(payment)
    await refunding.turn()
    await ground.final()
    done = "UPDATE chain_refund SET disposition = $1, refund_id = $2 RETURNING block"
    [row] = await ground.world.rows("SELECT refund_id FROM chain_refund")
    [late] = await ground.world.rows(done, None, None)
    shown = await _compare(ground)
    assert [(side.type, side.lines) for side in shown.sums] == [("payment", 1)]
    [blocks] = await ground.world.rows("SELECT last_block FROM reconciliation_blocks")
    assert blocks["last_block"] == late["block"] - 1
    await ground.world.rows(done, "settles", row["refund_id"])
    shown = await _next_day(ground)
    assert [(side.type, side.lines) for side in shown.sums] == [("refund", 1)]
    assert shown.run.status == "matched"


async def _empty_receiver(ground: ChainWorld, token: str = _TAKEN) -> None:
    """Withdraw all of a token from the receiver, as the operator does."""
    receiver, place = ground.deployment.receiver, ground.deployment.token(token)
    asked = f"0x{abi.encode_balance_of(bytes.fromhex(receiver[2:])).hex()}"
    held = await ground.chain.number("eth_call", {"to": place.address, "data": asked}, "latest")
    await ground.chain.ask("anvil_impersonateAccount", receiver)
    await ground.chain.ask("anvil_setBalance", receiver, hex(10**18))
    data = "0xa9059cbb" + ground.payer[2:].rjust(64, "0") + f"{held:064x}"
    await ground.send({"to": place.address, "value": "0x0", "data": data}, receiver)
    await ground.final()


async def test_a_receiver_that_was_emptied_by_hand_is_shown_and_no_case(
    ground: ChainWorld,
) -> None:
    await _paid(ground)
    await _empty_receiver(ground)
    shown = await _compare(ground)
    assert (shown.run.status, shown.run.opened) == ("matched", 0)
    receiver, refunders, ledger, expected = _balance(shown)
    assert (receiver, refunders, expected) == ("0", "0", None)
    assert float(ledger) > 0


async def test_where_what_is_taken_out_is_entered_a_balance_that_is_lower_is_a_case(
    ground: ChainWorld,
) -> None:
    await _paid(ground)
    await _empty_receiver(ground)

    async def enter(amount: str, reference: str) -> None:
        await ground.world.perform(
            RecordGatewayPayout(
                account_id=ground.account_id, amount=amount, currency=_TAKEN, reference=reference
            )
        )

    await enter("5.00", "by hand 1")
    shown = await _compare(ground)
    receiver, _, ledger, expected = _balance(shown)
    assert (shown.run.status, shown.run.opened, receiver) == ("differs", 1, "0")
    assert expected == ledger
    [subject] = await case_subjects(ground)
    assert subject.startswith(
        f"native receiver {ground.deployment.receiver.lower()}: the balance is {ledger} USDT below"
    )
    again = await _next_day(ground)
    assert (again.run.status, again.run.opened) == ("differs", 0)
    await enter(ledger, "by hand 2")
    assert (await _next_day(ground)).run.status == "matched"


async def test_what_comes_after_the_block_of_the_balance_is_not_expected_in_it(
    ground: ChainWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _paid(ground)
    comparison = make_comparison(ground)
    await ground.world.perform(
        RecordGatewayPayout(
            account_id=ground.account_id, amount="-1.00", currency="NATIVED", reference="x"
        )
    )
    read = chain_comparison.read_holdings

    async def read_and_pay(*args: Any) -> Any:
        found = await read(*args)
        await _paid(ground)
        return found

    monkeypatch.setattr(chain_comparison, "read_holdings", read_and_pay)
    await compare_chain(comparison, ground.slug)
    receiver, _, ledger, _ = _balance(await newest_run(ground))
    assert receiver == ledger


def _single_block(reader: RpcChainReader, endpoint: str) -> int:
    del reader, endpoint
    return 1


async def test_a_run_that_was_left_goes_on_after_its_last_piece(
    ground: ChainWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _paid(ground)
    await _paid(ground)
    monkeypatch.setattr(contract_logs, "RANGE_LOGS_MAX", 1)
    monkeypatch.setattr(RpcChainReader, "get_span", _single_block)
    chunk, asked = RpcChainReader.search_logs, list[int]()

    async def away_after_a_log(self: RpcChainReader, *args: Any) -> Any:
        if asked and len(found) == 1:
            raise ChainUnavailableError("away")
        batch = await chunk(self, *args)
        asked.append(args[1])
        found.extend(batch.logs)
        return batch

    found = list[Any]()
    monkeypatch.setattr(RpcChainReader, "search_logs", away_after_a_log)
    left = await _compare(ground)
    assert (left.run.status, [side.lines for side in left.sums]) == ("running", [1])
    monkeypatch.setattr(RpcChainReader, "search_logs", chunk)
    assert (await _compare(ground)).run.status == "running"  # its lease has not ended
    await ground.world.rows("UPDATE reconciliation_run SET lease_until = clock()")
    ended = await _compare(ground)
    assert (ended.run.id, ended.run.status) == (left.run.id, "matched")
    assert [(side.lines, side.records) for side in ended.sums] == [(2, 2)]


async def test_while_another_worker_compares_a_chain_nobody_else_does(ground: ChainWorld) -> None:
    await _paid(ground)
    url = ground.world.service.settings.database_url
    async with hold_advisory_lock(url, f"compare:{ground.slug}") as lock:
        assert lock.is_held
        await compare_chain(make_comparison(ground), ground.slug)
        assert await ground.world.perform(ListReconciliationRuns()) == []
    assert (await _compare(ground)).run.status == "matched"


async def test_a_run_that_failed_says_why_and_is_done_again_where_it_stopped(
    ground: ChainWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _paid(ground)

    def refuse(*args: Any) -> Any:
        raise ValueError(args)

    monkeypatch.setattr(chain_comparison, "make_lines", refuse)
    failed = (await _compare(ground)).run
    assert (failed.status, failed.problem) == ("failed", "internal error: ValueError")
    monkeypatch.undo()
    await ground.world.perform(RetryReconciliationRun(run_id=failed.id))
    again = await _compare(ground)
    assert (again.run.id, again.run.status) == (failed.id, "matched")


async def test_what_test_accounts_took_is_not_compared(ground: ChainWorld) -> None:
    await _paid(ground)
    await ground.world.rows(
        "ALTER TABLE payment_method DROP CONSTRAINT payment_method_account_mode"
    )
    await ground.world.rows(
        "UPDATE provider_account SET livemode = false WHERE id = $1", ground.account_id
    )
    await compare_chain(make_comparison(ground), ground.slug)
    assert await ground.world.perform(ListReconciliationRuns()) == []


async def test_a_worker_compares_the_chains_that_have_endpoints(ground: ChainWorld) -> None:
    await _paid(ground)
    settings = ground.world.service.settings.model_copy(
        update={"rpc_native": SecretStr(ground.chain.url)}
    )
    await reconcile_chains(replace(ground.world.service, settings=settings))
    assert (await newest_run(ground)).run.status == "matched"
