"""A poll does not read the deposit addresses or deposits of ended payments."""

import re
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from payintent.chains import unswept_store
from payintent.onchain import deposits_store, pending_deposits_store
from payintent.onchain.pending_deposits_store import RecheckSchedule
from payintent.onchain.sweeps import batches_store
from tests.db.test_plans import _PARTIAL, _reads_all, _statements
from tests.support.deposits import add_factory
from tests.support.onchain import ChainWorld
from tests.support.plans import generic_plan, nodes

pytestmark = pytest.mark.full

ENDED, UNSWEPT = 50_000, 1_000
_GROWING = {"session", "deposit_address", "chain_receipt"}
#: Copies of the only session, its address and its deposit. Most copies are swept.
_FILL = """
CREATE TEMPORARY TABLE copy AS SELECT gen_random_uuid() AS id, n FROM generate_series(1, {ended}) n;
INSERT INTO session SELECT (jsonb_populate_record(s, jsonb_build_object('id', copy.id))).*
FROM session s, copy;
INSERT INTO deposit_address (session_id, account_id, uuid, address, from_block, covered)
SELECT copy.id, a.account_id, uuid_send(copy.id), substr(sha256(uuid_send(copy.id)), 1, 20),
    a.from_block, true
FROM deposit_address a, copy;
INSERT INTO chain_receipt
SELECT (jsonb_populate_record(r, jsonb_build_object('id', copy.id, 'session_id', copy.id,
    'log_index', n + 1000,
    'deposit_sweep_id', CASE WHEN n > {unswept} THEN r.deposit_sweep_id END))).*
FROM chain_receipt r, copy;
"""


async def _record_poll(ground: ChainWorld) -> set[str]:
    """Return the statements that read addresses and deposits in every pass."""
    database, chain = ground.world.database, ground.slug
    statements: set[str] = set()
    schedule = RecheckSchedule(timedelta(), timedelta(), timedelta(), timedelta(), 1)
    with _statements(statements):
        await deposits_store.get_open_addresses(database, chain)
        await deposits_store.list_decidable_sessions(database, chain, datetime.now(UTC))
        await pending_deposits_store.begin_recheck(database, chain, schedule)
        await deposits_store.list_addresses(database, chain, 0, 10)
        await batches_store.list_unclaimed(database, chain)
        await unswept_store.list_unswept(database, chain)
    return {statement for statement in statements if re.search(r"\bFROM\b", statement)}


async def _find_full_scans(raw: asyncpg.Connection, statements: set[str]) -> list[str]:
    """List the growing tables that a statement reads completely, directly or through an index."""
    partial = {row[0] for row in await raw.fetch(_PARTIAL)}
    return [
        f"{node['Node Type']} of {node['Relation Name']}: {' '.join(statement.split())}"
        for statement in statements
        for node in nodes(await generic_plan(raw, statement))
        if node.get("Relation Name") in _GROWING and _reads_all(node, partial)
    ]


async def test_a_poll_does_not_read_addresses_or_deposits_of_ended_payments(
    ground: ChainWorld, raw: asyncpg.Connection
) -> None:
    deposits = await add_factory(ground, "USDT")
    payment, session = await deposits.bill()
    await deposits.transfer(session)
    await ground.final()
    await deposits.sweep(session)
    await ground.final()
    assert await ground.status(payment) == "PAID"
    await raw.execute(_FILL.format(ended=ENDED, unswept=UNSWEPT))
    await raw.execute("ANALYZE")
    statements = await _record_poll(ground)
    assert len(statements) >= 7
    assert await _find_full_scans(raw, statements) == []
