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
from tests.support.chain_refunds import RefundWorld
from tests.support.onchain import ChainWorld

pytestmark = pytest.mark.full

_TOKEN = "USDT"


async def _compare(ground: ChainWorld) -> RunDetails:
    """Run the due comparison; return the newest run."""
    await compare_due(ground)
    return await newest_run(ground)


async def _next_day(ground: ChainWorld) -> RunDetails:
    await ground.mine(3)
    await ground.turn()
    await next_day(ground)
    return await _compare(ground)


async def _pay(ground: ChainWorld, token: str = _TOKEN) -> None:
    """Create and pay a payment, and make it final."""
    payment, session = await ground.bill(token)
    await ground.pay(session)
    await ground.final()
    assert await ground.status(payment) == "PAID"


def _balance(details: RunDetails, token: str = _TOKEN) -> tuple[Any, ...]:
    [token_balance] = [balance for balance in details.balances if balance.currency == token]
    return (
        token_balance.receiver,
        token_balance.refunders,
        token_balance.ledger,
        token_balance.expected,
    )


async def test_a_run_matches_if_logs_captures_ledger_and_balance_agree(
    refunding: RefundWorld,
) -> None:
    ground = refunding.ground
    payment, _ = await refunding.paid("NATIVED")
    await _pay(ground)
    await refunding.ask(payment, "10.00")
    await refunding.turn()
    await ground.final()
    details = await _compare(ground)
    assert (details.run.status, details.run.opened, details.run.source) == ("matched", 0, "chain")
    sums = {(side.type, side.currency): side for side in details.sums}
    assert set(sums) == {("payment", "NATIVED"), ("payment", "USDT"), ("refund", "NATIVED")}
    for side in details.sums:
        assert (side.lines, side.records) == (1, 1)
        assert side.gateway == side.service == side.ledger == side.merchants
    receiver, _, ledger, expected = _balance(details)
    assert (receiver, expected) == (ledger, None)
    assert await case_subjects(ground) == []


async def test_a_contract_is_compared_daily_and_each_block_only_once(ground: ChainWorld) -> None:
    await _pay(ground)
    first = await _compare(ground)
    assert (await _compare(ground)).run == first.run
    await _pay(ground)
    second = await _next_day(ground)
    assert second.run.id != first.run.id
    assert [(side.lines, side.gateway) for side in second.sums] == [(1, first.sums[0].gateway)]
    blocks = await ground.world.rows(
        "SELECT first_block, last_block FROM reconciliation_blocks ORDER BY first_block"
    )
    assert blocks[1]["first_block"] == blocks[0]["last_block"] + 1


async def test_a_log_without_a_capture_opens_a_case(ground: ChainWorld) -> None:
    await _pay(ground)
    await ground.world.rows("ALTER TABLE capture DROP CONSTRAINT capture_receipt_id_fkey")
    await ground.world.rows("ALTER TABLE money_case DROP CONSTRAINT money_case_capture_id_fkey")
    await ground.world.rows("DELETE FROM capture")
    details = await _compare(ground)
    assert (details.run.status, details.run.opened) == ("differs", 1)
    [side] = details.sums
    assert (side.lines, side.records, side.service) == (1, 0, "0")
    [subject] = await case_subjects(ground)
    assert subject.startswith("native payment 0x")
    assert subject.endswith(f": extra, {side.gateway} USDT")


async def test_a_capture_without_a_log_opens_a_case(ground: ChainWorld) -> None:
    await _pay(ground)
    await ground.world.rows("UPDATE chain_receipt SET log_index = log_index + 7")
    await ground.world.rows(
        "UPDATE capture SET reference = regexp_replace(reference, ':.*', ':77')"
    )
    details = await _compare(ground)
    assert (details.run.status, details.run.opened) == ("differs", 2)
    there, here = await case_subjects(ground)
    assert (": extra, " in there, ": missing, " in here) == (True, True)
    assert ":77" in here


async def test_too_many_differences_fail_the_run_without_opening_cases(
    ground: ChainWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(difference_cases, "DIFFERENCES_MAX", 1)
    await _pay(ground)
    await ground.world.rows("UPDATE chain_receipt SET log_index = log_index + 7")
    await ground.world.rows(
        "UPDATE capture SET reference = regexp_replace(reference, ':.*', ':77')"
    )
    failed = (await _compare(ground)).run
    assert (failed.status, failed.opened) == ("failed", 0)
    assert failed.problem.startswith("there are too many differences (2);")
    assert await case_subjects(ground) == []


@pytest.mark.parametrize("column", ["amount", "debit"])
async def test_an_incorrect_ledger_entry_opens_a_case(ground: ChainWorld, column: str) -> None:
    await _pay(ground)
    await ground.world.rows("ALTER TABLE ledger_entry DISABLE TRIGGER USER")
    value = {"amount": "amount - 1", "debit": "'gateway_clearing:1'"}[column]
    await ground.world.rows(f"UPDATE ledger_entry SET {column} = {value} WHERE leg = 'payable'")
    details = await _compare(ground)
    assert (details.run.status, details.run.opened) == ("differs", 1)
    [subject] = await case_subjects(ground)
    assert ": ledger, " in subject
    assert "in the ledger" in subject


async def test_an_incorrect_ledger_entry_for_a_refund_opens_a_case(refunding: RefundWorld) -> None:
    payment, _ = await refunding.paid("USDT")
    await refunding.ask(payment)
    await refunding.turn()
    await refunding.ground.final()
    await refunding.ground.world.rows("ALTER TABLE ledger_entry DISABLE TRIGGER USER")
    await refunding.ground.world.rows(
        "UPDATE ledger_entry SET amount = amount + 1 WHERE fact = 'refund_done'"
    )
    details = await _compare(refunding.ground)
    assert (details.run.status, details.run.opened) == ("differs", 1)
    [subject] = await case_subjects(refunding.ground)
    assert subject.startswith("native refund ")


async def test_a_refund_that_has_not_taken_effect_is_compared_in_the_next_run(
    refunding: RefundWorld,
) -> None:
    ground = refunding.ground
    payment, _ = await refunding.paid("USDT")
    await refunding.ask(payment)
    await refunding.turn()
    await ground.final()
    update = "UPDATE chain_refund SET disposition = $1, refund_id = $2 RETURNING block"
    [row] = await ground.world.rows("SELECT refund_id FROM chain_refund")
    [pending] = await ground.world.rows(update, None, None)
    details = await _compare(ground)
    assert [(side.type, side.lines) for side in details.sums] == [("payment", 1)]
    [blocks] = await ground.world.rows("SELECT last_block FROM reconciliation_blocks")
    assert blocks["last_block"] == pending["block"] - 1
    await ground.world.rows(update, "settles", row["refund_id"])
    details = await _next_day(ground)
    assert [(side.type, side.lines) for side in details.sums] == [("refund", 1)]
    assert details.run.status == "matched"


async def _empty_receiver(ground: ChainWorld, token: str = _TOKEN) -> None:
    """Withdraw all of a token from the receiver, as the operator does."""
    receiver, contract = ground.deployment.receiver, ground.deployment.token(token)
    call_data = f"0x{abi.encode_balance_of(bytes.fromhex(receiver[2:])).hex()}"
    balance = await ground.chain.number(
        "eth_call", {"to": contract.address, "data": call_data}, "latest"
    )
    await ground.chain.ask("anvil_impersonateAccount", receiver)
    await ground.chain.ask("anvil_setBalance", receiver, hex(10**18))
    data = "0xa9059cbb" + ground.payer[2:].rjust(64, "0") + f"{balance:064x}"
    await ground.send({"to": contract.address, "value": "0x0", "data": data}, receiver)
    await ground.final()


async def test_a_receiver_emptied_by_the_operator_does_not_open_a_case(
    ground: ChainWorld,
) -> None:
    await _pay(ground)
    await _empty_receiver(ground)
    details = await _compare(ground)
    assert (details.run.status, details.run.opened) == ("matched", 0)
    receiver, refunders, ledger, expected = _balance(details)
    assert (receiver, refunders, expected) == ("0", "0", None)
    assert float(ledger) > 0


async def test_a_balance_below_the_ledger_opens_a_case_if_payouts_are_recorded(
    ground: ChainWorld,
) -> None:
    await _pay(ground)
    await _empty_receiver(ground)

    async def enter(amount: str, reference: str) -> None:
        await ground.world.perform(
            RecordGatewayPayout(
                account_id=ground.account_id, amount=amount, currency=_TOKEN, reference=reference
            )
        )

    await enter("5.00", "by hand 1")
    details = await _compare(ground)
    receiver, _, ledger, expected = _balance(details)
    assert (details.run.status, details.run.opened, receiver) == ("differs", 1, "0")
    assert expected == ledger
    [subject] = await case_subjects(ground)
    assert subject.startswith(
        f"native receiver {ground.deployment.receiver.lower()}: the balance is {ledger} USDT below"
    )
    repeated = await _next_day(ground)
    assert (repeated.run.status, repeated.run.opened) == ("differs", 0)
    await enter(ledger, "by hand 2")
    assert (await _next_day(ground)).run.status == "matched"


async def test_payments_after_the_balance_block_are_not_expected_in_the_balance(
    ground: ChainWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _pay(ground)
    comparison = make_comparison(ground)
    await ground.world.perform(
        RecordGatewayPayout(
            account_id=ground.account_id, amount="-1.00", currency="NATIVED", reference="x"
        )
    )
    read_holdings = chain_comparison.read_holdings

    async def read_and_pay(*args: Any) -> Any:
        holdings = await read_holdings(*args)
        await _pay(ground)
        return holdings

    monkeypatch.setattr(chain_comparison, "read_holdings", read_and_pay)
    await compare_chain(comparison, ground.slug)
    receiver, _, ledger, _ = _balance(await newest_run(ground))
    assert receiver == ledger


def _single_block(reader: RpcChainReader, endpoint: str) -> int:
    del reader, endpoint
    return 1


async def test_an_interrupted_run_resumes_after_its_last_range(
    ground: ChainWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _pay(ground)
    await _pay(ground)
    monkeypatch.setattr(contract_logs, "RANGE_LOGS_MAX", 1)
    monkeypatch.setattr(RpcChainReader, "get_span", _single_block)
    search_logs, searches = RpcChainReader.search_logs, list[int]()

    async def fail_after_a_log(self: RpcChainReader, *args: Any) -> Any:
        if searches and len(logs) == 1:
            raise ChainUnavailableError("unreachable")
        batch = await search_logs(self, *args)
        searches.append(args[1])
        logs.extend(batch.logs)
        return batch

    logs = list[Any]()
    monkeypatch.setattr(RpcChainReader, "search_logs", fail_after_a_log)
    interrupted = await _compare(ground)
    assert (interrupted.run.status, [side.lines for side in interrupted.sums]) == ("running", [1])
    monkeypatch.setattr(RpcChainReader, "search_logs", search_logs)
    assert (await _compare(ground)).run.status == "running"  # its lease has not ended
    await ground.world.rows("UPDATE reconciliation_run SET lease_until = clock()")
    resumed = await _compare(ground)
    assert (resumed.run.id, resumed.run.status) == (interrupted.run.id, "matched")
    assert [(side.lines, side.records) for side in resumed.sums] == [(2, 2)]


async def test_only_one_worker_at_a_time_compares_a_chain(ground: ChainWorld) -> None:
    await _pay(ground)
    url = ground.world.service.settings.database_url
    async with hold_advisory_lock(url, f"compare:{ground.slug}") as lock:
        assert lock.is_held
        await compare_chain(make_comparison(ground), ground.slug)
        assert await ground.world.perform(ListReconciliationRuns()) == []
    assert (await _compare(ground)).run.status == "matched"


async def test_a_failed_run_reports_its_error_and_can_be_retried(
    ground: ChainWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _pay(ground)

    def fail(*args: Any) -> Any:
        raise ValueError(args)

    monkeypatch.setattr(chain_comparison, "make_lines", fail)
    failed = (await _compare(ground)).run
    assert (failed.status, failed.problem) == ("failed", "internal error: ValueError")
    monkeypatch.undo()
    await ground.world.perform(RetryReconciliationRun(run_id=failed.id))
    retried = await _compare(ground)
    assert (retried.run.id, retried.run.status) == (failed.id, "matched")


async def test_payments_of_test_accounts_are_not_compared(ground: ChainWorld) -> None:
    await _pay(ground)
    await ground.world.rows(
        "ALTER TABLE payment_method DROP CONSTRAINT payment_method_account_mode"
    )
    await ground.world.rows(
        "UPDATE provider_account SET livemode = false WHERE id = $1", ground.account_id
    )
    await compare_chain(make_comparison(ground), ground.slug)
    assert await ground.world.perform(ListReconciliationRuns()) == []


async def test_a_worker_compares_the_chains_that_have_endpoints(ground: ChainWorld) -> None:
    await _pay(ground)
    settings = ground.world.service.settings.model_copy(
        update={"rpc_native": SecretStr(ground.chain.url)}
    )
    await reconcile_chains(replace(ground.world.service, settings=settings))
    assert (await newest_run(ground)).run.status == "matched"
