"""Cell 0 is restored beside another cell, which goes on: what that knows is taken back first."""

import asyncio
import base64
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
from pydantic import SecretStr

from payintent.config import Settings
from payintent.domain.errors import DatabaseRefusedError, ErrorCode, RefusedError
from payintent.domain.payment import CreatePaymentRequest, Payment
from payintent.operations import merchant_moves, submit
from payintent.operations.cell_changes import AddCell
from payintent.operations.cells import CopyAnew
from payintent.operations.copy_tables import CellCopier
from payintent.operations.keys import RevokeApiKey
from payintent.operations.ledger import CheckLedger, ShowLedger
from payintent.operations.merchant_moves import MoveEnder, MoveMerchant
from payintent.operations.payouts import RecordPayout
from payintent.operations.take_back import TakeBack, TakenBack
from payintent.operations.tax_rates import ListTaxRates, RemoveTaxRate, SetTaxRate
from payintent.payments.carry_balances import carry_due
from payintent.payments.statements_over_cells import list_balances
from payintent.service import open_service
from payintent.storage import api_keys, merchants
from payintent.storage.cells import Cells
from tests.support.cell_schema import OF_CELLS
from tests.support.cells import copy_tables, with_cells
from tests.support.copying import copied_rows
from tests.support.databases import Databases, at_database, name_of
from tests.support.two_cells import TwoCells
from tests.support.world import ACTOR, World

pytestmark = OF_CELLS
_TERMINATE = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1"


@dataclass(frozen=True)
class Backups:
    """An installation of cells 0 and 1, and copies of cell 0 that it is restored to."""

    world: World
    settings: Settings

    def restored(self, url: str) -> Settings:
        """Return the settings of the installation after cell 0 was restored."""
        return self.settings.model_copy(update={"database_url": url, "database_direct_url": None})

    @asynccontextmanager
    async def opened(
        self, settings: Settings | None = None, process: str = "payintent"
    ) -> AsyncIterator[World]:
        service = await open_service(
            settings or self.settings, {"fake": self.world.gateway}, process
        )
        try:
            yield replace(self.world, service=service)
        finally:
            await service.close()


@dataclass(frozen=True)
class Since:
    """What happened between the backup of cell 0 and its end."""

    request: CreatePaymentRequest
    created: Payment  # in cell 1
    late_merchant: int  # which the backup does not have
    revoked: str
    owed: int  # less what was paid in cell 0, which nothing knows of any more


@pytest.fixture
async def copies(databases: Databases) -> AsyncIterator[list[str]]:
    """The copies of cell 0 that a test makes, dropped behind it."""
    made: list[str] = []
    yield made
    for url in made:
        databases.give_back(url)


@pytest.fixture
async def backups(
    world: World, databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Backups]:
    monkeypatch.setattr(submit, "_COPIED_S", 0.1)  # no API copies here
    url = databases.take()
    settings = world.service.settings.model_copy(update={"api_key_cache_s": 0.0})
    yield Backups(world, with_cells(settings, {1: url}))
    databases.give_back(url)


async def _back_up(world: World, copies: list[str]) -> str:
    """Copy cell 0 as it is; nobody may be connected to it meanwhile."""
    url = world.service.settings.database_url
    name = f"test_{uuid4().hex}"
    server = await asyncpg.connect(os.environ["TESTS_POSTGRES_URL"])
    await server.execute(f'ALTER DATABASE "{name_of(url)}" ALLOW_CONNECTIONS false')
    await server.fetch(_TERMINATE, name_of(url))
    await server.execute(f'CREATE DATABASE "{name}" TEMPLATE "{name_of(url)}"')
    await server.execute(f'ALTER DATABASE "{name_of(url)}" ALLOW_CONNECTIONS true')
    await server.close()
    copies.append(at_database(url, name))
    return copies[-1]


async def _add_cell(backups: Backups) -> None:
    async with backups.opened() as world:
        await world.perform(AddCell(number=1))


async def _go_on(world: World, *, sells_before: bool = False) -> Since:
    """Move the merchant to cell 1 and let it sell there; add another one, and revoke a key."""
    two, cells = TwoCells(world, {}), world.service.cells
    lost = -await _owed(cells, world.merchant_id)
    if sells_before:
        await two.pay(world.merchant_id)
    lost += await _owed(cells, world.merchant_id)
    await world.perform(MoveMerchant(merchant_id=world.merchant_id, to=1))
    request = world.request()
    created = (await world.service.payment_creator.create(request)).payment
    assert cells.number_of(created.id) == 1
    await two.pay(world.merchant_id)
    late = (await world.other_merchant("Late")).merchant.id
    await world.perform(MoveMerchant(merchant_id=late, to=1))
    await two.pay(late)
    revoked = world.api_key.split("_")[2]
    await world.perform(RevokeApiKey(public_id=revoked))
    await world.perform(SetTaxRate(country="TH", rate=Decimal("0.07")))
    await copy_tables(cells)
    owed = await _owed(cells, world.merchant_id) - lost
    return Since(request, created, late, revoked, owed)


async def _owed(cells: Cells, merchant_id: int) -> int:
    return sum(balance.amount_minor for balance in await list_balances(cells, merchant_id))


async def _pay_out(world: World, minor: int) -> Any:
    return await world.perform(
        RecordPayout(
            merchant_id=world.merchant_id,
            amount=f"{minor / 100:.2f}",
            currency="THB",
            reference="bank 1",
        )
    )


async def _are_equal(cells: Cells) -> bool:
    return await copied_rows(cells.at(0)) == await copied_rows(cells.at(1))


@pytest.mark.parametrize("sells_before", [False, True])
async def test_nothing_serves_a_cell_0_that_lacks_moves_and_nothing_is_lost_by_taking_them_back(
    backups: Backups, copies: list[str], sells_before: bool
) -> None:
    await _add_cell(backups)
    async with backups.opened() as world:
        await TwoCells(world, {}).pay(world.merchant_id)
        await copy_tables(world.service.cells)
    url = await _back_up(backups.world, copies)
    async with backups.opened() as world:
        since = await _go_on(world, sells_before=sells_before)
    settings = backups.restored(url)

    lost = f"merchant {world.merchant_id} is or was in cell 1, merchant {since.late_merchant}"
    for process in ("payintent-api", "payintent-worker"):
        with pytest.raises(DatabaseRefusedError, match=lost):
            await open_service(settings, process=process)
    async with backups.opened(settings) as world:
        cells = world.service.cells
        before = await copied_rows(cells.at(1))
        await copy_tables(cells)
        assert await copied_rows(cells.at(1)) == before, "what cell 0 does not know stays"
        assert await cells.number_of_merchant(world.merchant_id) == 0
        for change, why in (
            (CopyAnew(), "take-back 1"),
            (CopyAnew(number=1), "take-back 1"),
        ):
            with pytest.raises(RefusedError, match=why) as refused:
                await world.perform(change)
            assert refused.value.code is ErrorCode.CONFLICT
        with pytest.raises(RefusedError, match="take-back 1") as refused:
            await _pay_out(world, 100)
        assert refused.value.code is ErrorCode.SERVICE_UNAVAILABLE

        taken: TakenBack = await world.perform(TakeBack(number=1))
        assert taken.rows["merchant"] == 1
        assert taken.rows["merchant_cell"] == 4  # a place in each cell, of both
        assert await _are_equal(cells)
        assert await copied_rows(cells.at(1)) == before
    async with backups.opened(settings, "payintent-api") as world:
        await _is_whole(world, since)


async def _is_whole(world: World, since: Since) -> None:
    """Hold what serves after the restore to what was there before: keys, places, numbers, money."""
    cells = world.service.cells
    await _replays(world, since.request, since.created)
    found = await merchants.get(cells.control, since.late_merchant)
    assert found is not None
    assert found.name == "Late"
    new = await world.other_merchant()
    assert new.merchant.id > since.late_merchant, "no number is used twice"
    [key] = await api_keys.list_keys(cells.control, world.merchant_id, 2)
    assert (key.public_id, key.revoked_at is not None) == (since.revoked, True)
    await _is_owed_once(world, since.owed)


async def _replays(world: World, request: CreatePaymentRequest, created: Payment) -> None:
    """Hold a key to count in cell 1, and what is made next to be there."""
    again = await world.service.payment_creator.create(request)
    assert (again.payment.id, again.replayed) == (created.id, True)
    assert world.service.cells.number_of((await world.create()).id) == 1


async def _is_owed_once(world: World, owed: int) -> None:
    """Pay out what is owed, and no more; hold the books of both cells to agree."""
    cells = world.service.cells
    assert await _owed(cells, world.merchant_id) == owed
    with pytest.raises(RefusedError, match="owed"):
        await _pay_out(world, owed + 1)
    await _pay_out(world, owed)
    assert await _owed(cells, world.merchant_id) == 0
    for cell in cells.numbers():
        await carry_due(cells, cell)
    assert await world.perform(CheckLedger()) == []
    found = await world.perform(ShowLedger())
    clearing = [line.balance_minor for line in found if line.account == "cell_clearing"]
    assert sum(map(int, clearing)) == 0


async def test_copies_of_a_lost_change_stay_until_they_are_made_anew_and_are_cell_0s_then(
    backups: Backups, copies: list[str]
) -> None:
    await _add_cell(backups)
    url = await _back_up(backups.world, copies)
    async with backups.opened() as world:
        await world.perform(SetTaxRate(country="TH", rate=Decimal("0.07")))
        await copy_tables(world.service.cells)
    async with backups.opened(backups.restored(url), "payintent-api") as world:
        cells, warnings = world.service.cells, list[str]()
        for country in ("DE", "JP", "FR"):  # past the number that the cell has
            operation = SetTaxRate(country=country, rate=Decimal("0.1"))
            await world.service.submit(operation, ACTOR, warn=warnings.append)
            await copy_tables(cells)
        assert len(warnings) == 3, "an operator is told that the cell has none of them"
        with pytest.raises(RefusedError, match="changed after") as refused:
            await world.perform(TakeBack(number=1))
        assert refused.value.code is ErrorCode.CONFLICT
        copied = await cells.at(1).fetch("SELECT country FROM tax_rate")
        assert [row["country"] for row in copied] == ["TH"]
        await world.perform(CopyAnew())
        await copy_tables(cells)
        assert await _are_equal(cells)
        assert {item.country for item in await world.perform(ListTaxRates())} == {"DE", "JP", "FR"}


async def _stop_a_move(*_: object) -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize("lost", ["the move", "its last step"])
async def test_a_move_that_a_failover_lost_is_made_again_where_operators_have_gone_on(
    backups: Backups, copies: list[str], monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    await _add_cell(backups)
    move = MoveMerchant(merchant_id=backups.world.merchant_id, to=1)
    async with backups.opened() as world:
        await TwoCells(world, {}).pay(world.merchant_id)
        await copy_tables(world.service.cells)
        if lost == "its last step":
            with monkeypatch.context() as patch:
                patch.setattr(merchant_moves, "end_move", _stop_a_move)
                with pytest.raises(asyncio.CancelledError):
                    await world.perform(move)
    url = await _back_up(backups.world, copies)
    async with backups.opened() as world:
        cells = world.service.cells
        await world.perform(move)
        request = world.request()
        created = (await world.service.payment_creator.create(request)).payment
        await TwoCells(world, {}).pay(world.merchant_id)
        await copy_tables(cells)
        owed = await _owed(cells, world.merchant_id)
    settings = backups.restored(url)
    async with backups.opened(settings) as world:  # its processes were never stopped
        await world.perform(SetTaxRate(country="DE", rate=Decimal("0.07")))
        await copy_tables(world.service.cells)
        await _make_the_move_again(world, move, monkeypatch, lost)
    async with backups.opened(settings, "payintent-api") as world:
        await _replays(world, request, created)
        await _is_owed_once(world, owed)
        assert await _are_equal(world.service.cells)


async def _make_the_move_again(
    world: World, move: MoveMerchant, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """Do what the runbook says of copies that are late: the move, then the copies."""
    cells = world.service.cells
    with pytest.raises(RefusedError, match="changed after"):
        await world.perform(TakeBack(number=1))
    if lost == "the move":
        with pytest.raises(RefusedError, match="is or was in cell 1"):
            await world.perform(CopyAnew())
        with monkeypatch.context() as patch:
            patch.setattr(merchant_moves, "_COPY_S", 0.1)  # nothing is copied until it is said
            with pytest.raises(RefusedError, match="has begun, and not ended"):
                await world.perform(move)
    await world.perform(CopyAnew())
    await copy_tables(cells)
    await MoveEnder(cells).step()
    assert not (await world.perform(move)).begun, "it has ended"
    await copy_tables(cells)
    assert await _are_equal(cells)


async def test_what_was_set_up_and_what_was_removed_since_is_taken_back(
    backups: Backups, copies: list[str]
) -> None:
    rate = Decimal("0.07")
    await _add_cell(backups)
    async with backups.opened() as world:
        await world.perform(SetTaxRate(country="DE", rate=rate))
        await copy_tables(world.service.cells)
        with pytest.raises(RefusedError, match="nothing was lost"):
            await world.perform(TakeBack(number=1))
    url = await _back_up(backups.world, copies)
    async with backups.opened() as world:
        await world.perform(RemoveTaxRate(country="DE"))
        await world.perform(SetTaxRate(country="TH", rate=rate))
        await copy_tables(world.service.cells)
    async with backups.opened(backups.restored(url)) as world:
        taken: TakenBack = await world.perform(TakeBack(number=1))
        assert taken.rows == {"tax_rate": 2}
        assert [item.country for item in await world.perform(ListTaxRates())] == ["TH"]
        assert await _are_equal(world.service.cells)
        await world.perform(SetTaxRate(country="JP", rate=rate))
        await copy_tables(world.service.cells)
        assert await _are_equal(world.service.cells), "copies follow as ever"


async def test_what_was_set_up_is_taken_back_by_a_ring_whose_first_key_is_newer_than_the_backup(
    backups: Backups, copies: list[str]
) -> None:
    """The first command notes that the key writes, which is no change that would be lost."""
    await _add_cell(backups)
    url = await _back_up(backups.world, copies)
    before = backups.settings.keyring.get_secret_value()
    ring = f"newer:{base64.b64encode(b'n' * 32).decode()},{before}"
    newer = {"keyring": SecretStr(ring)}
    async with backups.opened(backups.settings.model_copy(update=newer)) as world:
        await world.perform(SetTaxRate(country="TH", rate=Decimal("0.07")))
        await copy_tables(world.service.cells)
    settings = backups.restored(url).model_copy(update=newer)
    async with backups.opened(settings):
        pass  # as `payintent doctor`
    async with backups.opened(settings) as world:
        taken: TakenBack = await world.perform(TakeBack(number=1))
        assert taken.rows["tax_rate"] == 1
        assert await _are_equal(world.service.cells)


async def test_a_cell_that_was_added_since_is_found_and_taken_back_from(
    backups: Backups, copies: list[str]
) -> None:
    url = await _back_up(backups.world, copies)
    await _add_cell(backups)
    async with backups.opened() as world:
        since = await _go_on(world)
    settings = backups.restored(url)
    with pytest.raises(DatabaseRefusedError, match="cell 1 does: that it is there"):
        await open_service(settings, process="payintent-api")
    async with backups.opened(settings) as world:
        assert not world.service.cells.are_several
        with pytest.raises(RefusedError, match="take-back 1"):
            await world.perform(AddCell(number=1))
        await world.perform(TakeBack(number=1))
    async with backups.opened(settings, "payintent-api") as world:
        again = await world.service.payment_creator.create(since.request)
        assert (again.payment.id, again.replayed) == (since.created.id, True)


async def test_of_two_cells_that_were_added_since_the_one_with_older_copies_is_refused(
    backups: Backups, copies: list[str], databases: Databases
) -> None:
    url = await _back_up(backups.world, copies)
    second = databases.take()
    copies.append(second)
    urls = {number: cell.database_url for number, cell in backups.settings.other_cells.items()}
    both = replace(backups, settings=with_cells(backups.settings, urls | {2: second}))
    async with both.opened() as world:
        for number in (1, 2):
            await world.perform(AddCell(number=number))
    async with both.opened() as world:
        cells = world.service.cells
        await copy_tables(cells)
        await world.perform(SetTaxRate(country="TH", rate=Decimal("0.07")))
        await CellCopier(cells.control, cells.at(2)).step()  # cell 1 was away
    async with both.opened(both.restored(url)) as world:
        assert not world.service.cells.are_several
        with pytest.raises(RefusedError, match="cell 2 are newer: take back from there") as refused:
            await world.perform(TakeBack(number=1))
        assert refused.value.code is ErrorCode.CONFLICT
        await world.perform(TakeBack(number=2))
        assert [item.country for item in await world.perform(ListTaxRates())] == ["TH"]
