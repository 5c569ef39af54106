"""Unassigned money is refunded automatically within limits; an operator decides above them."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from payintent.accounting.ledger_check_store import find_differences
from payintent.cases.operations import ListCases
from payintent.chains import watch_store as chain_watch_store
from payintent.chains.operations import SetToken
from payintent.evm.port import GAS_MAX
from payintent.evm.refund_sender import RpcRefundSender, open_refund_senders
from payintent.gateway_accounts.health import FAILURES_MAX
from payintent.merchants.operations import SetMerchantProfile
from payintent.onchain.operations import SetChain
from payintent.onchain.watch_loop import AUTOMATIC_GAS_LEFT, make_chain_alarm
from payintent.payments.model import Session
from payintent.refunds import store as refunds
from payintent.refunds.operations import ShowRefund
from payintent.refunds.resolve_case import ResolveCase
from tests.support.contracts import USDT, bill, log_of, offer_tokens, record_final_logs
from tests.support.http_server import clean_up
from tests.support.world import World

pytestmark = pytest.mark.full

COIN = 10**18
REFUNDER = f"0x{20 * '4e'}"
_TX_HASH = f"0x{32 * 'ab'}"
_DAY_S = 24 * 3600


@dataclass
class Signer:
    """A signer on a chain without blocks: it estimates `gas` and records its transactions."""

    gas: int = 90_000
    transactions: list[dict[str, str]] = field(default_factory=list[dict[str, str]])

    async def answer(self, request: web.Request) -> web.Response:
        call = await request.json()
        return web.json_response({"jsonrpc": "2.0", "id": call["id"], "result": self._result(call)})

    def _result(self, call: dict[str, Any]) -> object:
        if call["method"] == "eth_sendTransaction":
            self.transactions.append(call["params"][0])
            return _TX_HASH
        results = {
            "eth_chainId": hex(612_055),
            "eth_accounts": [REFUNDER],
            "eth_getCode": "0x6001",
            "eth_estimateGas": hex(self.gas),
        }
        return results[call["method"]]


@asynccontextmanager
async def serving(signer: Signer) -> AsyncGenerator[str]:
    app = web.Application()
    app.router.add_post("/", signer.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    [(host, port)] = [address[:2] for address in runner.addresses]
    try:
        yield f"http://{host}:{port}/"
    finally:
        await clean_up(runner)


@dataclass
class Ground:
    """A merchant that refunds automatically, with both tokens of a chain and a signer for it."""

    world: World
    methods: dict[str, int]
    signer: Signer

    async def bill(self, symbol: str = "NATIVED") -> Session:
        _, session = await bill(self.world, self.methods[symbol])
        return session

    async def orphan(self, amount: int = 5 * COIN) -> None:
        """Pay a wrong amount for a separate payment."""
        await record_final_logs(self.world, log_of(await self.bill(), amount=amount))

    async def work(self) -> None:
        """Process every unfinished refund once."""
        await self.world.rows("UPDATE refund SET next_at = clock() WHERE next_at IS NOT NULL")
        for due in await refunds.claim_due(self.world.database, 100, 60.0, []):
            await self.world.service.refund_sender.process(due)

    async def refunds(self) -> list[tuple[str, str]]:
        rows = await self.world.rows("SELECT status, step FROM refund ORDER BY id")
        return [(row["status"], row["step"]) for row in rows]

    async def open_cases(self) -> list[Any]:
        return await self.world.perform(ListCases(status="OPEN", limit=100))

    async def reserved(self) -> int:
        [row] = await self.world.rows("SELECT sum(reserved_minor) AS reserved FROM capture")
        return int(row["reserved"])


@pytest.fixture
async def on_chain(
    world: World, refund_senders: dict[str, RpcRefundSender]
) -> AsyncIterator[Ground]:
    methods = await offer_tokens(world)
    await world.perform(SetMerchantProfile(merchant_id=world.merchant_id, auto_refund=True))
    await world.perform(SetChain(chain="native", refunder=REFUNDER))
    signer = Signer()
    async with serving(signer) as url:
        senders = open_refund_senders({"native": url}, {"native": [url]})
        refund_senders |= senders
        yield Ground(world, methods, signer)
        await senders.close()


SENT = ("PENDING", "sent")
QUEUED = ("PENDING", "queued")
FAILED = ("FAILED", "ended")


async def test_dust_needs_manual_review_and_is_not_refunded_automatically(on_chain: Ground) -> None:
    await on_chain.orphan(1)
    await on_chain.orphan(COIN - 1)
    assert await on_chain.refunds() == []
    assert {case.kind for case in await on_chain.open_cases()} == {"AMOUNT_MISMATCH"}
    await on_chain.orphan(COIN)
    assert await on_chain.refunds() == [QUEUED]
    await on_chain.work()
    assert len(on_chain.signer.transactions) == 1


async def test_each_token_has_its_own_minimum_for_automatic_refunds(on_chain: Ground) -> None:
    await on_chain.world.perform(
        SetToken(chain="native", symbol="USDT", decimals=6, auto_refund_from="7.5")
    )
    usdt = bytes.fromhex(USDT[2:])
    for amount, count in ((7_499_999, 0), (7_500_000, 1)):
        session = await on_chain.bill("USDT")
        await record_final_logs(on_chain.world, log_of(session, token=usdt, amount=amount))
        assert len(await on_chain.refunds()) == count, amount
    await on_chain.orphan(COIN)
    assert len(await on_chain.refunds()) == 2


async def test_an_unconfigured_token_is_not_refunded_automatically(on_chain: Ground) -> None:
    session = await on_chain.bill()
    await record_final_logs(on_chain.world, log_of(session, token=20 * b"\x11", amount=100 * COIN))
    assert [case.kind for case in await on_chain.open_cases()] == ["TOKEN_MISMATCH"]
    assert await on_chain.refunds() == []


@pytest.mark.parametrize("at_once", [True, False], ids=["one block", "block by block"])
async def test_only_the_first_two_transfers_of_a_session_are_refunded_automatically(
    on_chain: Ground, at_once: bool
) -> None:
    session = await on_chain.bill()
    logs = [log_of(session, amount=2 * COIN, block_number=7 + number) for number in range(5)]
    if at_once:
        await record_final_logs(on_chain.world, *logs)
    else:
        for log in reversed(logs):  # the order if an endpoint has omitted some logs
            await record_final_logs(on_chain.world, log)
    assert await on_chain.refunds() == [QUEUED] * 2
    assert len(await on_chain.open_cases()) == 5
    await on_chain.orphan()  # the limit applies to each session
    assert await on_chain.refunds() == [QUEUED] * 3


async def test_the_transfer_that_paid_counts_towards_the_limit_of_two(on_chain: Ground) -> None:
    session = await on_chain.bill()
    await record_final_logs(
        on_chain.world, *[log_of(session, block_number=7 + n) for n in range(3)]
    )
    assert len(await on_chain.open_cases()) == 2
    assert await on_chain.refunds() == [QUEUED]


async def test_a_refund_above_the_gas_bound_fails_and_an_operator_can_refund_it(
    on_chain: Ground,
) -> None:
    await on_chain.orphan()
    on_chain.signer.gas = 150_001
    await on_chain.work()
    assert await on_chain.refunds() == [FAILED]
    assert on_chain.signer.transactions == []
    assert await on_chain.reserved() == 0
    [case] = await on_chain.open_cases()
    assert "150001 gas" in (await on_chain.world.perform(ShowRefund(refund_id=case.refund.id))).note
    await on_chain.world.perform(ResolveCase(case_id=case.id, resolution="refund", note="a wallet"))
    await on_chain.work()
    assert await on_chain.refunds() == [FAILED, SENT]
    [transaction] = on_chain.signer.transactions
    assert 150_001 < int(transaction["gas"], 16) <= GAS_MAX
    assert await find_differences(on_chain.world.database) == []


async def test_a_refund_above_the_maximum_gas_fails_immediately(on_chain: Ground) -> None:
    await on_chain.orphan()
    on_chain.signer.gas = GAS_MAX + 1
    await on_chain.work()
    assert await on_chain.refunds() == [FAILED]


@pytest.mark.parametrize(("estimate", "limit"), [(90_000, 112_500), (149_000, 150_000)])
async def test_the_gas_limit_of_a_transaction_never_exceeds_the_bound(
    on_chain: Ground, estimate: int, limit: int
) -> None:
    await on_chain.orphan()
    on_chain.signer.gas = estimate
    await on_chain.work()
    assert [int(transaction["gas"], 16) for transaction in on_chain.signer.transactions] == [limit]


async def test_automatic_refunds_fail_when_the_daily_gas_budget_is_spent(on_chain: Ground) -> None:
    on_chain.signer.gas = 80_000  # 100,000 with the margin
    await on_chain.world.perform(SetChain(chain="native", auto_refund_gas=250_000))
    for _ in range(4):
        await on_chain.orphan()
    await on_chain.work()
    assert await on_chain.refunds() == [SENT, SENT, FAILED, FAILED]
    assert len(on_chain.signer.transactions) == 2
    [row] = await on_chain.world.rows("SELECT note FROM refund WHERE status = 'FAILED' LIMIT 1")
    assert "daily gas budget" in row["note"]
    await on_chain.world.move_clock(_DAY_S)
    await on_chain.orphan()
    await on_chain.work()
    assert len(on_chain.signer.transactions) == 3


async def test_concurrent_workers_do_not_exceed_the_daily_gas_budget(on_chain: Ground) -> None:
    await on_chain.world.perform(SetChain(chain="native", auto_refund_gas=250_000))
    database = on_chain.world.database
    reservations = await asyncio.gather(
        *[chain_watch_store.reserve_gas(database, "native", 100_000) for _ in range(6)]
    )
    assert sorted(reservations) == [False] * 4 + [True] * 2


async def test_a_gas_budget_of_zero_disables_automatic_refunds_on_a_chain(on_chain: Ground) -> None:
    await on_chain.world.perform(SetChain(chain="native", auto_refund_gas=0))
    await on_chain.orphan()
    await on_chain.work()
    assert await on_chain.refunds() == [FAILED]
    await make_chain_alarm(on_chain.world.database)()
    assert _gas_left() is None


async def test_a_resend_waits_for_the_gas_budget_and_keeps_its_reservation(
    on_chain: Ground,
) -> None:
    """The first transaction may still be mined, so a new refund could pay twice."""
    on_chain.signer.gas = 80_000
    await on_chain.world.perform(SetChain(chain="native", auto_refund_gas=100_000))
    await on_chain.orphan()
    await on_chain.work()
    assert await on_chain.refunds() == [SENT]
    await on_chain.world.rows("UPDATE refund SET step = 'queued'")
    await on_chain.work()
    assert await on_chain.refunds() == [QUEUED]
    assert await on_chain.reserved() == 5 * COIN
    assert len(on_chain.signer.transactions) == 1
    for _ in range(FAILURES_MAX):  # the signer is not queried
        await on_chain.work()
    assert await on_chain.world.rows("SELECT 1 FROM gateway_outage") == []
    await on_chain.world.move_clock(_DAY_S)
    await on_chain.work()
    assert await on_chain.refunds() == [SENT]
    assert len(on_chain.signer.transactions) == 2


async def test_a_refund_by_an_operator_does_not_use_the_gas_budget(on_chain: Ground) -> None:
    await on_chain.world.perform(SetChain(chain="native", auto_refund_gas=0))
    await on_chain.orphan(1)
    [case] = await on_chain.open_cases()
    await on_chain.world.perform(ResolveCase(case_id=case.id, resolution="refund", note="asked"))
    await on_chain.work()
    assert await on_chain.refunds() == [SENT]


def _gas_left() -> float | None:
    [metric] = AUTOMATIC_GAS_LEFT.collect()
    values = [sample.value for sample in metric.samples if sample.labels["chain"] == "native"]
    return values[0] if values else None


async def test_the_remaining_daily_gas_is_exported_as_a_metric(on_chain: Ground) -> None:
    on_chain.signer.gas = 80_000
    await on_chain.world.perform(SetChain(chain="native", auto_refund_gas=250_000))
    step = make_chain_alarm(on_chain.world.database)
    await step()
    assert _gas_left() == 250_000
    await on_chain.orphan()
    await on_chain.work()
    await step()
    assert _gas_left() == 150_000
    await on_chain.world.move_clock(_DAY_S)
    await step()
    assert _gas_left() == 250_000
