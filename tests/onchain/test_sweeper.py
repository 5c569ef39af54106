"""The sweeper sends due sweeps through the signer, on a real chain."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Coroutine, Generator
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest

from payintent.accounting.ledger_check_store import find_differences
from payintent.chains import store as chain_store
from payintent.chains.operations import SetToken, SweepNow
from payintent.chains.signer_checks import check_sweep_setup
from payintent.evm.chain_reader import RpcChainReader
from payintent.evm.signer import open_signers
from payintent.onchain.operations import SetChain
from payintent.onchain.sweeps import batches_store
from payintent.onchain.sweeps.sweeper import PENDING_AGE, WAITING, Sweeper
from payintent.payments.model import Session
from tests.support.chain_refunds import Mood, Signer, signing
from tests.support.deposits import DepositGround, add_factory
from tests.support.onchain import ChainWorld, config_of
from tests.support.ports import free_port

WAIT_S = 700  # more than the time after which an unknown batch is released


@dataclass
class SweepWorld:
    """A chain with a factory, and a sweeper with a signer that can fail."""

    deposits: DepositGround
    signer: Signer
    url: str
    more_urls: tuple[str, ...] = ()

    async def sweeper(self) -> Sweeper:
        ground = self.deposits.ground
        chain = await chain_store.get_chain(ground.world.database, ground.slug)
        assert chain is not None
        external = open_signers({ground.slug: self.signer.url}, ground.clock)[ground.slug]
        ground.clock.skipped_s += 60
        return Sweeper(
            database=ground.world.database,
            chain=chain,
            signer=external,
            open_reader=lambda _: RpcChainReader(
                ground.slug, [self.url, *self.more_urls], config_of(ground.slug)
            ),
        )

    async def step(self, kill_at: int | None = None) -> bool:
        """Run a step, and kill it at an await point if given; return whether it ended."""
        sweeper = await self.sweeper()
        try:
            if kill_at is None:
                await sweeper.step()
                return True
            killable = Killable(sweeper.step(), kill_at)
            with suppress(asyncio.CancelledError):
                await asyncio.create_task(killable.run())
            return not killable.was_killed
        finally:
            await sweeper.signer.close()

    async def recover(self) -> None:
        """Abandon unknown transactions, and sweep everything."""
        for _ in range(3):
            await self.deposits.ground.pass_time(WAIT_S)
            await self.deposits.ground.final()
            await self.step()
            await self.deposits.ground.final()

    async def pay(self, blocks: int = 3) -> Session:
        payment, session = await self.deposits.bill()
        await self.deposits.transfer(session, session.quote.total_minor)
        await self.deposits.ground.final(blocks)
        assert await self.deposits.ground.status(payment) == "PAID"
        return session

    async def sweeps(self) -> list[bool]:
        rows = await self.deposits.ground.world.rows(
            "SELECT succeeded FROM deposit_sweep ORDER BY block, log_index"
        )
        return [row["succeeded"] for row in rows]

    async def results(self) -> list[str | None]:
        rows = await self.deposits.ground.world.rows("SELECT * FROM sweep_batch ORDER BY id")
        return [row["result"] for row in rows]

    async def set(self, **changes: Any) -> None:
        await self.deposits.ground.world.perform(
            SetChain(chain=self.deposits.ground.slug, **changes)
        )

    async def checks(self, *, has_signer: bool = True) -> list[tuple[bool, str]]:
        sweeper = await self.sweeper()
        signer = sweeper.signer if has_signer else None
        try:
            checks = check_sweep_setup(signer, sweeper.chain, has_factory=True)
            return [(item.is_ok, item.text) async for item in checks]
        finally:
            await sweeper.signer.close()

    async def is_balanced(self) -> bool:
        return await find_differences(self.deposits.ground.world.database) == []


class Killable(Awaitable[Any]):
    """Runs a coroutine until its await point `kill_at`, and cancels it there."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], kill_at: int) -> None:
        self._coroutine = coroutine
        self._kill_at = kill_at
        self.was_killed = False

    async def run(self) -> Any:
        return await self

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._coroutine.__await__()
        task = asyncio.current_task()
        assert task is not None
        try:
            pending = steps.send(None)
            for point in itertools.count():
                if point == self._kill_at:
                    self.was_killed = True
                    task.cancel()
                try:
                    yield pending
                except BaseException as error:  # noqa: BLE001 - it is passed on
                    pending = steps.throw(error)
                else:
                    pending = steps.send(None)
        except StopIteration as end:
            return end.value


async def open_sweeping(ground: ChainWorld, url: str) -> AsyncIterator[SweepWorld]:
    deposits = await add_factory(ground, "USDT")
    async with signing(url) as signer:
        world = SweepWorld(deposits, signer, url)
        accounts = await ground.chain.ask("eth_accounts")
        await world.set(sweeper=accounts[7], sweep_count=2)
        yield world


@pytest.fixture
async def sweeping(ground: ChainWorld, chain_url: str) -> AsyncIterator[SweepWorld]:
    async for world in open_sweeping(ground, chain_url):
        yield world


@pytest.fixture
async def usdt(ethereum: ChainWorld, ethereum_url: str) -> AsyncIterator[SweepWorld]:
    """A chain with a USDT that can block an account."""
    async for world in open_sweeping(ethereum, ethereum_url):
        yield world


async def test_due_deposits_are_swept_in_one_transaction(sweeping: SweepWorld) -> None:
    await sweeping.pay()
    await sweeping.step()
    assert sweeping.signer.sent == []
    await sweeping.pay()
    await sweeping.step()
    await sweeping.step()
    assert len(sweeping.signer.sent) == 1
    await sweeping.deposits.ground.final()
    await sweeping.step()
    assert await sweeping.sweeps() == [True, True]
    assert await sweeping.results() == ["mined"]
    balances = await sweeping.deposits.balances()
    assert "chain_deposits USDT" not in balances
    assert balances["chain_gas NATIVED"] > 0
    assert await sweeping.is_balanced()


async def test_an_old_deposit_is_swept_alone(sweeping: SweepWorld) -> None:
    await sweeping.pay()
    await sweeping.deposits.ground.move_clock(86_400)
    await sweeping.step()
    await sweeping.deposits.ground.final()
    assert await sweeping.sweeps() == [True]


async def test_dust_is_not_swept_and_does_not_use_up_the_limit(
    sweeping: SweepWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches_store, "_ADDRESSES_MAX", 1)
    slug = sweeping.deposits.ground.slug
    await sweeping.pay()
    await sweeping.deposits.ground.world.perform(
        SetToken(chain=slug, symbol="USDT", sweep_minimum="25.51")
    )
    await sweeping.deposits.ground.world.perform(SweepNow(chain=slug))
    await sweeping.step()
    assert sweeping.signer.sent == []
    payment, session = await sweeping.deposits.bill(amount=Decimal(26), amount_text="26.00")
    await sweeping.deposits.transfer(session, session.quote.total_minor)
    await sweeping.deposits.ground.final()
    assert await sweeping.deposits.ground.status(payment) == "PAID"
    await sweeping.deposits.ground.world.perform(SweepNow(chain=slug))
    await sweeping.step()
    await sweeping.deposits.ground.final()
    assert await sweeping.sweeps() == [True]


async def test_deposits_are_swept_on_request_or_by_value(sweeping: SweepWorld) -> None:
    slug = sweeping.deposits.ground.slug
    await sweeping.pay()
    await sweeping.deposits.ground.world.perform(SweepNow(chain=slug))
    await sweeping.step()
    await sweeping.deposits.ground.final()
    await sweeping.pay()
    await sweeping.step()
    assert len(sweeping.signer.sent) == 1
    await sweeping.deposits.ground.world.perform(
        SetToken(chain=slug, symbol="USDT", sweep_value="25.5")
    )
    await sweeping.step()
    assert len(sweeping.signer.sent) == 2


@pytest.mark.full
async def test_sweeps_wait_while_gas_is_too_expensive(sweeping: SweepWorld) -> None:
    await sweeping.set(sweep_gas_price_max="0.000000001")
    await sweeping.pay()
    await sweeping.pay()
    await sweeping.step()
    assert sweeping.signer.sent == []
    assert WAITING.labels(sweeping.deposits.ground.slug)._value.get() == 1
    await sweeping.set(sweep_gas_price_max="1000")
    await sweeping.step()
    assert len(sweeping.signer.sent) == 1
    assert WAITING.labels(sweeping.deposits.ground.slug)._value.get() == 0


@pytest.mark.full
async def test_concurrent_sweepers_send_each_deposit_once(sweeping: SweepWorld) -> None:
    for _ in range(4):
        await sweeping.pay()
    await asyncio.gather(*(sweeping.step() for _ in range(4)))
    await sweeping.deposits.ground.final()
    await sweeping.step()
    assert len(sweeping.signer.sent) == 1
    assert await sweeping.sweeps() == [True] * 4


@pytest.mark.full
@pytest.mark.parametrize("mood", [Mood.LOSES, Mood.SILENT, Mood.REFUSES])
async def test_every_deposit_is_swept_once_after_a_signer_failure(
    sweeping: SweepWorld, mood: Mood
) -> None:
    await sweeping.pay()
    await sweeping.pay()
    sweeping.signer.mood = mood
    await sweeping.step()
    await sweeping.step()
    sweeping.signer.mood = Mood.SENDS
    await sweeping.recover()
    assert await sweeping.sweeps() == [True, True]
    assert len(sweeping.signer.sent) == 1
    assert await sweeping.is_balanced()


@pytest.mark.full
async def test_repeated_sweep_failures_of_an_address_open_a_case(usdt: SweepWorld) -> None:
    ground = usdt.deposits.ground
    blocked, _ = await usdt.pay(40), await usdt.pay(40)
    await usdt.deposits.call_token("set_blocked", usdt.deposits.address(blocked), True)
    await usdt.set(sweep_after_s=0)
    for hours in (0, 2, 3, 5):
        await ground.move_clock(hours * 3_600)
        await usdt.step()
        await ground.final(40)
        await usdt.step()
    assert await usdt.sweeps() == [False, True, False, False]
    assert await ground.cases() == ["RECONCILIATION"]
    await usdt.deposits.call_token("set_blocked", usdt.deposits.address(blocked), False)
    await ground.final(40)
    await ground.world.perform(SweepNow(chain=ground.slug))
    await usdt.step()
    await ground.final(40)
    assert await usdt.sweeps() == [False, True, False, False, True]
    assert await usdt.is_balanced()


@pytest.mark.full
async def test_a_token_is_not_swept_for_an_hour_after_all_sweeps_of_a_batch_failed(
    usdt: SweepWorld,
) -> None:
    """The token's issuer may have paused it."""
    ground = usdt.deposits.ground
    for _ in range(2):
        blocked = await usdt.pay(40)
        await usdt.deposits.call_token("set_blocked", usdt.deposits.address(blocked), True)
    await usdt.step()
    for _ in range(2):
        await usdt.pay(40)
    await usdt.step()
    await usdt.step()
    assert await usdt.sweeps() == [False, False]
    assert len(usdt.signer.sent) == 1
    await ground.move_clock(3_600)
    await usdt.step()
    await ground.final(40)
    assert sorted((await usdt.sweeps())[2:]) == [False, False, True, True]


async def test_failed_sweeps_by_other_accounts_do_not_stop_the_sweeper(
    sweeping: SweepWorld,
) -> None:
    session = await sweeping.pay()
    await sweeping.deposits.sweep(*[session] * 5)
    await sweeping.deposits.ground.final()
    await sweeping.deposits.transfer(session, 5)
    await sweeping.deposits.ground.mine()
    await sweeping.deposits.ground.world.rows("UPDATE chain_cursor SET looked_at = '-infinity'")
    await sweeping.deposits.ground.final()
    await sweeping.set(sweep_after_s=0)
    await sweeping.step()
    await sweeping.deposits.ground.final()
    assert (await sweeping.sweeps())[-1]
    assert "RECONCILIATION" not in await sweeping.deposits.ground.cases()


async def test_failures_before_a_deposit_in_the_same_block_do_not_count(
    sweeping: SweepWorld,
) -> None:
    """Anyone can sweep an address before our transaction, and send dust to it afterwards."""
    ground = sweeping.deposits.ground
    session = await sweeping.pay()
    await sweeping.deposits.sweep(*[session] * 5)
    await ground.final()
    await ground.world.rows("""
        INSERT INTO sweep_batch (id, chain, account_id, token, sender, tx_hash, ended_at, result)
        SELECT id, chain, account_id, token, token, tx_hash, clock(), 'mined'
        FROM deposit_sweep LIMIT 1
    """)
    await sweeping.deposits.transfer(session, 5)
    await ground.mine()
    await ground.world.rows("UPDATE chain_cursor SET looked_at = '-infinity'")
    await ground.final()
    await ground.world.rows("""
        UPDATE chain_receipt SET block = (SELECT max(block) FROM deposit_sweep), log_index = 99
        WHERE deposit_sweep_id IS NULL
    """)
    await sweeping.set(sweep_after_s=0)
    await sweeping.step()
    await ground.final()
    assert (await sweeping.sweeps())[-1]
    assert "RECONCILIATION" not in await ground.cases()


async def test_addresses_of_a_replaced_factory_are_swept(sweeping: SweepWorld) -> None:
    old = sweeping.deposits
    _, session = await old.bill()
    sweeping.deposits = await add_factory(old.ground, "USDT")
    await sweeping.pay()
    await old.transfer(session)
    await old.ground.final()
    await sweeping.set(sweep_after_s=0)
    await sweeping.step()
    await old.ground.final()
    await sweeping.step()
    assert await sweeping.sweeps() == [True, True]
    assert await sweeping.results() == ["mined", "mined"]
    assert await sweeping.is_balanced()


@pytest.mark.full
async def test_a_reverted_batch_is_resent_after_an_hour(sweeping: SweepWorld) -> None:
    ground = sweeping.deposits.ground
    await sweeping.pay()
    await sweeping.pay()
    sweeping.signer.mood = Mood.SILENT
    await sweeping.step()
    sweeping.signer.mood = Mood.SENDS
    step = {"to": sweeping.deposits.factory, "value": "0x0", "data": "0x01020304"}
    reverted = await ground.send(step)
    await ground.world.rows("UPDATE sweep_batch SET tx_hash = $1", bytes.fromhex(reverted[2:]))
    await sweeping.step()
    assert await sweeping.results() == [None]
    await ground.final()
    await sweeping.step()
    await sweeping.step()
    assert await sweeping.results() == ["reverted"]
    assert sweeping.signer.sent == []
    await ground.move_clock(3_601)
    await sweeping.step()
    await ground.final()
    assert await sweeping.sweeps() == [True, True]
    assert await sweeping.is_balanced()


async def test_a_batch_waits_while_its_transaction_may_still_be_mined(
    sweeping: SweepWorld,
) -> None:
    ground = sweeping.deposits.ground
    await sweeping.pay()
    await sweeping.pay()
    await ground.chain.ask("evm_setAutomine", False)
    sweeping.signer.mood = Mood.LOSES
    await sweeping.step()
    sweeping.signer.mood = Mood.SENDS
    [row] = await ground.world.rows("SELECT block FROM chain_cursor")
    await ground.world.rows(
        "UPDATE chain_cursor SET deposit_at = clock() + interval '1 hour', sweep_block = $1,"
        " deposit_block = $1",
        row["block"],
    )
    await sweeping.step()
    assert await sweeping.results() == [None]
    age_s = PENDING_AGE.labels(ground.slug)
    assert age_s._value.get() > 3_000
    await ground.chain.ask("evm_setAutomine", True)
    await sweeping.recover()
    assert age_s._value.get() == 0
    assert len(sweeping.signer.sent) == 1
    assert await sweeping.sweeps() == [True, True]


@pytest.mark.full
@pytest.mark.parametrize("has_unavailable_endpoint", [False, True])
async def test_a_replaced_transaction_releases_its_addresses(
    sweeping: SweepWorld, has_unavailable_endpoint: bool
) -> None:
    """The runbook recommends this if the gas price of a pending transaction is too low."""
    ground = sweeping.deposits.ground
    if has_unavailable_endpoint:
        sweeping.more_urls = (f"http://127.0.0.1:{free_port()}/", sweeping.url)
    await sweeping.pay()
    await sweeping.pay()
    await ground.chain.ask("evm_setAutomine", False)
    await sweeping.step()
    sweeper = (await ground.chain.ask("eth_accounts"))[7]
    nonce = await ground.chain.ask("eth_getTransactionCount", sweeper, "latest")
    transfer = {"from": sweeper, "to": sweeper, "nonce": nonce, "gasPrice": hex(10**12)}
    await ground.chain.ask("eth_sendTransaction", transfer)
    await ground.chain.ask("evm_setAutomine", True)
    await ground.final()
    await sweeping.step()
    assert await sweeping.results() == [None]
    await sweeping.recover()
    assert await sweeping.results() == ["lost", "mined"]
    assert await sweeping.sweeps() == [True, True]
    assert await sweeping.is_balanced()


async def test_doctor_checks_the_key_and_the_gas_of_the_sweeper(sweeping: SweepWorld) -> None:
    assert [is_ok for is_ok, _ in await sweeping.checks()] == [True, True]
    stranger = "0x" + 40 * "1"
    await sweeping.set(sweeper=stranger)
    problems = await sweeping.checks()
    assert [is_ok for is_ok, _ in problems] == [False, False]
    assert problems[1][1].endswith("has 0 NATIVED")
    assert await sweeping.checks(has_signer=False) == [
        (False, "deposits are not swept: no signer is configured")
    ]


@pytest.mark.full
async def test_a_sweeper_can_be_killed_at_every_await_point(sweeping: SweepWorld) -> None:
    await sweeping.set(sweep_after_s=0)
    point, has_ended = 0, False
    while not has_ended:
        await sweeping.pay()
        has_ended = await sweeping.step(kill_at=point)
        await sweeping.recover()
        results = await sweeping.sweeps()
        assert results.count(True) == point + 1, point
        point += 1
    assert point > 20
    assert not results.count(False)
    assert await sweeping.is_balanced()
