"""A full database of the last version before 1.0 is upgraded to the new migrations."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from payintent.db import migrations_runner
from payintent.db.migrations_runner import OldSchemaError
from payintent.merchants import callback_secrets
from payintent.payments import store as payment_store
from payintent.refunds.create import CreateRefundRequest
from payintent.runtime.settings import Settings
from payintent.service import open_service
from tests.support.databases import Databases
from tests.support.fakes import FakeGateway
from tools.schema import dump

_LAST_BEFORE_1_0 = Path(__file__).with_name("schema_0249.sql").read_text()
_REMOVED_TABLES = {
    *("cell", "cell_process", "cell_transfer", "merchant_cell"),
    *("configuration_change", "configuration_copy"),
}
_REMOVED_COLUMNS = {
    "installation": {"cell", "id"},
    "configuration_version": {"number", "token", "changed_at"},
    "reconciliation_blocks": {"cell_away"},
}
_NEW_TABLES = {
    *("deposit_address", "deposit_sweep", "sweep_batch", "sweep_item"),
    *("payment_link", "payment_link_use"),
    "test_transfer",
}
_NEW_COLUMNS: dict[str, dict[str, Any]] = {
    "chain": {
        "sweeper": None,
        "sweep_count": 50,
        "sweep_after_s": 86_400,
        "sweep_gas_price_max": 0,
        "sweep_now_at": None,
        "transfer_fee_usd": 0,
    },
    "chain_contract": {"forwarder": None, "refund_account_id": None},
    "chain_cursor": {
        **dict.fromkeys(("deposit_block", "deposit_at", "sweep_block", "long_look_block")),
        **dict.fromkeys(("look_first", "look_until", "look_id", "look_block")),
        **dict.fromkeys(("looked_at", "long_looked_at"), "-infinity"),
        "look_is_long": False,
    },
    "chain_receipt": {"mined_at": None, "deposit_capture_id": None, "deposit_sweep_id": None},
    "chain_sighting": {"token": None, "amount": None},
    "chain_token": {"surplus_from": 0, "sweep_value": 0, "sweep_minimum": 0},
    "mail": {"refund_id": None},
    "merchant": {"callback_by_member": False, "deposit_tolerance": 0},
    "reconciliation_blocks": {"address_id": 0},
    "refund": {"address_entries": 0},
    "payment": {"return_url": None, "cancel_url": None},
    "payment_method": {"label_translations": {}},
    "session": {"label_translations": {}},
}
#: The upgrade replaces the history, and a new provider changes the configuration version.
_NOT_COMPARED = {"schema_migration", "configuration_version"}


@pytest.fixture
def database_url(empty_url: str) -> str:
    """The settings, with the upgraded database."""
    return empty_url


@pytest.fixture
async def old(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection to a database of the last version before 1.0."""
    connection = await asyncpg.connect(database_url)
    await connection.execute(_LAST_BEFORE_1_0)
    yield connection
    await connection.close()


async def _read_rows(connection: asyncpg.Connection) -> dict[str, list[dict[str, Any]]]:
    tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    rows = {}
    for (table,) in tables:
        records = await connection.fetch(f'SELECT to_jsonb(t) FROM "{table}" t ORDER BY t::text')
        rows[table] = [json.loads(row[0]) for row in records]
    return rows


async def test_the_upgraded_schema_equals_the_schema_of_a_new_database(
    old: asyncpg.Connection, database_url: str, databases: Databases
) -> None:
    names = [migration.name for migration in migrations_runner.list_migrations()]
    assert await migrations_runner.list_pending_migrations(database_url) == names
    results = await asyncio.gather(*(migrations_runner.migrate(database_url) for _ in range(3)))
    assert sorted(results) == [[], [], names]
    assert await migrations_runner.list_pending_migrations(database_url) == []
    new = databases.take()
    try:
        assert dump(database_url) == dump(new)
        new_connection = await asyncpg.connect(new)
        history = "SELECT number, name, checksum FROM schema_migration ORDER BY number"
        assert await old.fetch(history) == await new_connection.fetch(history)
        await new_connection.close()
    finally:
        databases.give_back(new)


async def test_every_row_is_preserved(old: asyncpg.Connection, database_url: str) -> None:
    before = await _read_rows(old)
    await migrations_runner.migrate(database_url)
    after = await _read_rows(old)
    assert before.keys() - after.keys() == _REMOVED_TABLES
    assert after.keys() - before.keys() == _NEW_TABLES
    for table, column, new in (
        ("provider", "name", {"onchain", "test_onchain"}),
        ("chain", "slug", {"test"}),
        ("chain_token", "chain", {"test"}),
    ):
        after[table] = [row for row in after[table] if row[column] not in new]
    usdc = {row["chain"]: row for row in before["chain_token"] if row["symbol"] == "USDC"}
    assert {slug: row["enabled"] for slug, row in usdc.items()} == {"ethereum": False, "bsc": False}
    usdc["ethereum"]["enabled"] = True  # bsc has a contract, which may not accept USDC
    for table in after.keys() - _NEW_TABLES - _NOT_COMPARED:
        removed = _REMOVED_COLUMNS.get(table, set())
        expected = [
            {name: value for name, value in row.items() if name not in removed}
            | _NEW_COLUMNS.get(table, {})
            for row in before[table]
        ]
        assert after[table] == expected, table
    filled = {table for table, rows in after.items() if rows}
    assert filled >= {
        *("merchant", "payment", "session", "capture", "refund", "money_case", "dispute", "event"),
        *("ledger_entry", "payout", "gateway_payout", "statement", "reconciliation_blocks"),
        *("provider_account", "chain_receipt", "audit", "proposal", "operator_token"),
    }


async def test_a_payment_from_before_the_upgrade_can_be_read_and_refunded(
    old: asyncpg.Connection, settings: Settings, gateway: FakeGateway
) -> None:
    await migrations_runner.migrate(settings.database_url)
    paid = await old.fetchrow(
        "SELECT id, merchant_id FROM payment WHERE status = 'PAID' AND payer_email IS NOT NULL "
        "AND refunded_amount + reserved_amount = 0 ORDER BY id LIMIT 1"
    )
    service = await open_service(settings, {"fake": gateway})
    stored = await payment_store.get(service.database, paid["id"])
    assert stored is not None
    assert (stored.payment.status, stored.payment.payer_email) == ("PAID", "buyer@example.com")
    request = CreateRefundRequest(
        merchant_id=paid["merchant_id"], payment_id=paid["id"], key=uuid4(), amount="40.00"
    )
    refund = (await service.refund_creator.create(request)).refund
    assert (refund.currency, refund.amount_minor) == ("THB", 4000)
    account = await service.accounts.get(1)
    assert account is not None
    assert account.credentials == {"signing_secret": "fake-signing-secret"}
    secrets = await callback_secrets.list_secrets(service.database, [paid["merchant_id"]], 10)
    assert len(secrets[paid["merchant_id"]]) == 1
    await service.close()


async def test_an_older_schema_version_is_refused_and_left_unchanged(
    old: asyncpg.Connection, database_url: str
) -> None:
    await old.execute("DELETE FROM schema_migration WHERE number = 249")
    before = dump(database_url)
    with pytest.raises(OldSchemaError, match="upgrade to that version first"):
        await migrations_runner.migrate(database_url)
    assert dump(database_url) == before
    assert "0001_initial" in await migrations_runner.list_pending_migrations(database_url)


@pytest.mark.parametrize(
    "change",
    ["INSERT INTO cell (number, state) VALUES (1, 'adding')", "UPDATE installation SET cell = 1"],
)
async def test_an_installation_with_several_cells_is_refused_and_left_unchanged(
    old: asyncpg.Connection, database_url: str, change: str
) -> None:
    await old.execute(change)
    before = await _read_rows(old)
    with pytest.raises(OldSchemaError, match="several cells"):
        await migrations_runner.migrate(database_url)
    assert await _read_rows(old) == before
