"""Transfers in any order, size, token and time, on a real chain: what Hypothesis thinks of.

`CHAIN_SEEDS=50` makes the long form.
"""

import os
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from payintent.accounting.ledger_check_store import find_differences
from payintent.core.errors import RefusedError
from payintent.evm.event_logs import TRANSFER
from payintent.payments.model import Payment, Session
from tests.support.deposits import DepositGround, add_factory
from tests.support.onchain import ChainWorld

pytestmark = pytest.mark.full

EXAMPLES = 3 * int(os.environ.get("CHAIN_SEEDS", "3"))
TTL_S = 1_800
TOTAL = 25_500_000  # 25.50 with 6 decimals
FINAL_AFTER = 40  # blocks
AMOUNTS = [1, 7, TOTAL // 2, TOTAL - TOTAL // 2, TOTAL - 1, TOTAL, TOTAL + 1, 2 * TOTAL]
Step = tuple[str, Any]
_STEPS = st.one_of(
    st.tuples(st.just("send"), st.sampled_from([(amount, "USDT") for amount in AMOUNTS])),
    st.tuples(st.just("send"), st.sampled_from([(TOTAL, "USDC"), (3, "USDC")])),
    st.tuples(st.just("poll"), st.none()),
    st.tuples(st.just("mine"), st.sampled_from([1, FINAL_AFTER])),
    st.tuples(st.just("reorg"), st.none()),
    st.tuples(st.just("change"), st.none()),
    st.tuples(st.just("pass"), st.sampled_from([600, 1_300, TTL_S + 1])),
    st.tuples(st.just("sweep"), st.none()),
)


@pytest.fixture
async def deposits(ethereum: ChainWorld) -> DepositGround:
    return await add_factory(ethereum, "USDT", "USDC")


async def take_step(
    deposits: DepositGround, payment: Payment, sessions: list[Session], step: Step
) -> None:
    ground, (name, value) = deposits.ground, step
    if name == "send":
        await deposits.transfer(sessions[-1 if value[0] % 2 else 0], *value)
    elif name == "poll":
        await ground.turn()
    elif name == "mine":
        await ground.mine(value)
    elif name == "reorg":
        await ground.mine(1)
        await ground.reorg(1)
    elif name == "pass":
        await ground.pass_time(value)
    elif name == "sweep":
        await deposits.sweep(*sessions)
    else:
        with suppress(RefusedError):
            selected = await ground.world.select(payment, deposits.methods["USDT"])
            sessions.append(selected.session)


async def end(deposits: DepositGround) -> None:
    """Let the deadline pass, and let every block be final and read twice."""
    ground = deposits.ground
    await ground.pass_time(TTL_S + 10)
    for _ in range(2):
        await ground.final(FINAL_AFTER)
    await ground.world.rows("UPDATE chain_cursor SET looked_at = '-infinity'")
    await ground.final(FINAL_AFTER)


async def read_chain(deposits: DepositGround, session: Session) -> dict[str, int]:
    """Ask the chain itself how much has arrived at a session's address, by token."""
    received: dict[str, int] = {}
    for symbol in ("USDT", "USDC"):
        recipient = f"0x{deposits.address(session)[2:]:0>64}"
        search = {
            "fromBlock": "0x0",
            "address": deposits.ground.token(symbol),
            "topics": [f"0x{TRANSFER.hex()}", None, recipient],
        }
        logs = await deposits.ground.chain.ask("eth_getLogs", search)
        if logs:
            received[symbol] = sum(int(log["data"], 16) for log in logs)
    return received


async def read_captures(deposits: DepositGround, session_id: UUID) -> dict[str, int]:
    rows = await deposits.ground.world.rows(
        """
        SELECT c.currency, sum(c.amount_minor)::text AS amount,
            bool_and(c.credited <> EXISTS (
                SELECT FROM money_case k WHERE k.capture_id = c.id)) AS is_owned
        FROM capture c
        WHERE c.session_id = $1
        GROUP BY c.currency
        """,
        session_id,
    )
    assert all(row["is_owned"] for row in rows)
    return {row["currency"]: int(row["amount"]) for row in rows}


async def must_be_paid(deposits: DepositGround, payment: Payment) -> bool:
    """Decide from the stored transfers alone whether the current session got its amount in time."""
    [row] = await deposits.ground.world.rows(
        """
        SELECT coalesce(sum(r.amount), 0) >= s.total_minor AS is_enough
        FROM payment p
        JOIN session s ON s.id = p.session_id
        LEFT JOIN chain_receipt r ON r.session_id = s.id AND r.mined_at <= p.expires_at
            AND r.token = s.token_address
        WHERE p.id = $1
        GROUP BY s.id
        """,
        payment.id,
    )
    return row["is_enough"]


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=st.lists(_STEPS, min_size=1, max_size=12))
async def test_every_unit_is_captured_once_or_in_a_case(
    deposits: DepositGround, steps: list[Step]
) -> None:
    payment, session = await deposits.bill(expires_in_s=TTL_S)
    sessions = [session]
    for step in steps:
        await take_step(deposits, payment, sessions, step)
    await end(deposits)
    for session in sessions:
        received = await read_chain(deposits, session)
        assert await read_captures(deposits, session.id) == received
    status = await deposits.ground.status(payment)
    assert status in {"PAID", "FAILED", "EXPIRED"}
    assert (status == "PAID") == await must_be_paid(deposits, payment)
    assert await find_differences(deposits.ground.world.database) == []
