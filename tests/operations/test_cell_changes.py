"""Cells that are added, drained and closed."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import LiteralString

import asyncpg
import pytest

from payintent.domain.errors import RefusedError
from payintent.domain.gateway import DisputeReport, DisputeState, VerifiedCallback
from payintent.operations import cell_changes
from payintent.operations import copy_tables as copying
from payintent.operations.audit_log import ListAuditEntries
from payintent.operations.cell_changes import AddCell, CloseCell, DrainCell
from payintent.operations.merchant_moves import MoveMerchant
from payintent.operations.merchants import SetCallbackUrl
from payintent.payments.expire import expire_due_pending
from payintent.service import Service, open_service
from payintent.storage import cell_records
from payintent.storage.cell_records import read_installation
from tests.payments.refunding import asked, paid
from tests.support.cell_schema import OF_CELLS
from tests.support.cells import copy_tables, with_cells
from tests.support.databases import Databases
from tests.support.two_cells import wait_for_nobody
from tests.support.world import ACTOR, World

pytestmark = OF_CELLS
_SLOW_CLOCK = (
    "CREATE OR REPLACE FUNCTION clock() RETURNS timestamptz LANGUAGE sql "
    "RETURN clock_timestamp() - interval '1 minute'"
)


@pytest.fixture(autouse=True)
def _nobody_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody copies but the commands themselves, so that others would wait in vain."""
    monkeypatch.setattr(copying, "wait_until_copied", wait_for_nobody)


@pytest.fixture
async def cell_url(databases: Databases) -> AsyncIterator[str]:
    """A migrated database that is of no installation yet."""
    url = databases.take()
    yield url
    databases.give_back(url)


async def _with(world: World, urls: dict[int, str]) -> Service:
    return await open_service(with_cells(world.service.settings, urls), {"fake": world.gateway})


async def _run(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


async def test_an_empty_database_becomes_a_cell_once_it_has_a_copy(
    world: World, cell_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = await _with(world, {1: cell_url})

    async def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(cell_changes, "_copy", killed)
        with pytest.raises(KeyboardInterrupt):
            await service.run_operation(AddCell(number=1), ACTOR)
    assert await _list(service) == ["open", "adding"]
    with pytest.raises(RefusedError, match="cell 1 is adding"):
        await service.run_operation(MoveMerchant(merchant_id=world.merchant_id, to=1), ACTOR)
    await service.run_operation(AddCell(number=1), ACTOR)
    await service.close()
    service = await _with(world, {1: cell_url})
    assert await _list(service) == ["open", "open"]
    cell = service.cells.at(1)
    assert (await read_installation(cell)).cell == 1
    [merchant] = await cell.fetch("SELECT id FROM merchant WHERE id = $1", world.merchant_id)
    assert merchant["id"] == world.merchant_id
    with pytest.raises(RefusedError, match="cell 1 is open, not adding"):
        await service.run_operation(AddCell(number=1), ACTOR)
    await service.close()


async def _list(service: Service) -> list[str]:
    return [cell.state for cell in await cell_records.list_cells(service.database)]


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("DELETE FROM schema_migration WHERE number = 218", "another schema"),
        ("INSERT INTO installation DEFAULT VALUES", "another installation's"),
        (
            "INSERT INTO merchant (name, default_country, locale) VALUES ('Somebody', 'TH', 'en')",
            "not empty",
        ),
        (_SLOW_CLOCK, "60.* s from that of cell 0"),
    ],
)
async def test_a_database_that_cannot_be_the_cell_is_refused_and_nothing_is_noted(
    world: World, cell_url: str, statement: str, why: str
) -> None:
    await _run(cell_url, statement)
    service = await _with(world, {1: cell_url})
    with pytest.raises(RefusedError, match=why):
        await service.run_operation(AddCell(number=1), ACTOR)
    assert await _list(service) == ["open"]
    await service.close()


async def test_control_itself_and_a_database_that_is_away_or_unknown_are_no_new_cell(
    world: World,
) -> None:
    settings = world.service.settings
    service = await _with(world, {1: settings.database_url, 2: "postgresql://127.0.0.1:1/no"})
    for number, why in ((1, "that of cell 0"), (2, "cell 2: "), (3, "does not say where")):
        with pytest.raises(RefusedError, match=why):
            await service.run_operation(AddCell(number=number), ACTOR)
    with pytest.raises(RefusedError, match="always open"):
        await service.run_operation(DrainCell(number=0), ACTOR)
    await service.close()


@pytest.fixture
async def drained(world: World, cell_url: str) -> AsyncIterator[World]:
    """A merchant with payments in cell 1 and, since it drains, new ones in cell 0."""
    first = await _with(world, {1: cell_url})
    await first.run_operation(AddCell(number=1), ACTOR)
    await first.close()
    service = await _with(world, {1: cell_url})
    there = replace(world, service=service)
    await there.perform(MoveMerchant(merchant_id=world.merchant_id, to=1))
    yield there
    await service.close()


async def _close(world: World) -> None:
    await world.perform(DrainCell(number=1))
    with pytest.raises(RefusedError, match="1 merchants are in cell 1"):
        await world.perform(CloseCell(number=1))
    await world.perform(MoveMerchant(merchant_id=world.merchant_id, to=0))
    await world.perform(CloseCell(number=1))


async def test_a_drained_cell_without_anything_open_is_closed_and_can_be_read(
    drained: World,
) -> None:
    payment = await drained.create()
    with pytest.raises(RefusedError, match="first run cell drain"):
        await drained.perform(CloseCell(number=1))
    with pytest.raises(RefusedError, match="in cell 1 is unended: 1 payments"):
        await _close(drained)
    cell = drained.service.cells.at(1)
    await cell.fetch("UPDATE payment SET expires_at = clock() - interval '1 second'")
    await expire_due_pending(cell, 10)
    await cell.fetch("UPDATE delivery SET state = 'skipped'")
    await drained.perform(CloseCell(number=1))
    assert await drained.status(payment) == "EXPIRED"
    await copy_tables(drained.service.cells)
    [copied] = await cell.fetch("SELECT state FROM cell WHERE number = 1")
    assert copied["state"] == "closed"
    with pytest.raises(RefusedError, match="cell 1 is closed"):
        await drained.perform(DrainCell(number=1))
    assert "cell.close" in [
        line.action for line in await drained.perform(ListAuditEntries(limit=5))
    ]


async def test_a_cell_is_closed_once_what_it_owed_was_carried_after_its_merchant(
    drained: World,
) -> None:
    await paid(drained)
    cell = drained.service.cells.at(1)
    await cell.fetch("UPDATE delivery SET state = 'skipped'")
    assert await cell_records.list_unended(cell) == {"balances": 1}
    await _close(drained)
    assert await _list(drained.service) == ["open", "closed"]


_ROWS: dict[str, LiteralString] = {
    "cases": "INSERT INTO money_case (id, kind, subject, opened_at) "
    "VALUES (gen_random_uuid(), 'RECONCILIATION', 'a line', clock())",
    "mails": "INSERT INTO mail (kind, sealed) VALUES ('invitation', 'sealed')",
    "callbacks": "INSERT INTO callback (account_id, callback_id) "
    "SELECT id, 'waits' FROM provider_account LIMIT 1",
    "balances": "INSERT INTO ledger_entry (fact_id, leg, currency, fact, debit, credit, amount) "
    "VALUES (gen_random_uuid(), 'suspense', 'THB', 'capture', 'gateway_clearing:1', "
    "'suspense:1', 100)",
    "transfers": "INSERT INTO cell_transfer (id, merchant_id, currency, from_cell, to_cell, "
    "amount_minor) SELECT gen_random_uuid(), id, 'THB', 1, 0, 1 FROM merchant LIMIT 1",
}


@pytest.mark.parametrize(
    "kind",
    ["payments", "sessions", "refunds", "disputes", "deliveries", *_ROWS],
)
async def test_a_cell_is_not_closed_while_anything_in_it_is_unended(
    drained: World, kind: str
) -> None:
    cell = drained.service.cells.at(1)
    if kind == "payments":
        await drained.create()
    elif kind == "sessions":
        await drained.select(await drained.create())
    elif kind == "refunds":
        await asked(drained, await paid(drained))
    elif kind == "disputes":
        payment = await paid(drained)
        report = DisputeReport(
            reference="du-1",
            capture=f"cap-{payment.id}",
            state=DisputeState.OPEN,
            amount_minor=100,
            currency="THB",
        )
        await drained.service.callback_receiver.receive(
            drained.account_id, VerifiedCallback(id="d", dispute=report), b"raw body"
        )
    elif kind in _ROWS:
        async with cell.transaction() as tx:
            if kind == "transfers":
                await tx.fetch("ALTER TABLE cell_transfer DISABLE TRIGGER cell_transfer_whole")
            await tx.fetch(_ROWS[kind])
    else:
        hooks = "https://93.184.216.34/hooks"
        await drained.perform(SetCallbackUrl(merchant_id=drained.merchant_id, callback_url=hooks))
        await copy_tables(drained.service.cells)
        await paid(drained)
    with pytest.raises(RefusedError, match=rf"in cell 1 is unended: .*[0-9] {kind}"):
        await _close(drained)
    assert await _list(drained.service) == ["open", "draining"]


async def test_control_takes_no_other_step_than_the_commands(drained: World) -> None:
    for statement in (
        "UPDATE cell SET state = 'closed' WHERE number = 1",
        "UPDATE cell SET state = 'draining' WHERE number = 0",
    ):
        with pytest.raises(asyncpg.CheckViolationError, match=r"cell_control|does not go from"):
            await _run(drained.service.settings.database_url, statement)
