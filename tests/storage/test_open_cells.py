"""Opening the databases of an installation: each has to be the cell that the settings say."""

from collections.abc import Iterator

import asyncpg
import pytest
from structlog.testing import capture_logs

from payintent.config import Settings
from payintent.domain.errors import (
    DatabaseRefusedError,
    RefusedError,
    StorageUnavailableError,
)
from payintent.encryption import load_encryption
from payintent.open_cells import open_cells
from payintent.operations.cells import ListCells, ShowCell
from payintent.service import open_service
from payintent.storage.cell_records import read_installation
from payintent.storage.cells import Cells
from tests.support.cell_schema import OF_CELLS
from tests.support.cells import add_cell, lose_place, until_it_answers, with_cells
from tests.support.database_proxy import DatabaseProxy
from tests.support.databases import WORLD_TEMPLATE, Databases
from tests.support.patience import until
from tests.support.world import ACTOR, World, free_port

pytestmark = OF_CELLS


@pytest.fixture
def cell_url(databases: Databases) -> Iterator[str]:
    """A database that no cell uses yet."""
    url = databases.take(WORLD_TEMPLATE)
    yield url
    databases.give_back(url)


@pytest.fixture
async def two(world: World, cell_url: str) -> Settings:
    """The settings of an installation with cell 1."""
    settings = world.service.settings
    await add_cell(settings.database_url, cell_url, 1)
    return with_cells(settings, {1: cell_url})


async def _open(settings: Settings) -> Cells:
    return await open_cells(settings, load_encryption(settings), "payintent-test", wait_s=None)


async def _change(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(statement)
    await connection.close()


async def test_each_cell_of_the_installation_is_opened_and_makes_ids_of_its_own(
    two: Settings,
) -> None:
    cells = await _open(two)
    assert [database.id_generator.cell for database in cells] == [0, 1]
    assert cells.numbered(0) is cells.control
    assert cells.numbered(2) is None
    second = cells.numbered(1)
    assert second is not None
    assert (await read_installation(second)).cell == 1
    await cells.close()


async def test_an_address_of_a_cell_that_is_not_in_use_is_left_alone(
    world: World, cell_url: str
) -> None:
    cells = await _open(with_cells(world.service.settings, {1: cell_url, 2: "postgresql://no"}))
    assert list(cells) == [cells.control]
    await cells.close()


async def test_settings_without_the_address_of_a_cell_are_refused(two: Settings) -> None:
    with pytest.raises(DatabaseRefusedError, match="has cell 1, and PAYINTENT_CELLS does not say"):
        await _open(with_cells(two, {2: two.database_url}))


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("UPDATE installation SET cell = 2", "cell 1: its database is that of cell 2"),
        ("UPDATE installation SET cell = 0", "cell 1: its database is that of cell 0"),
        ("UPDATE installation SET id = gen_random_uuid()", "cell 1: .* of another installation"),
        ("DELETE FROM installation", "cell 1: .* of another installation, or of none yet"),
    ],
)
async def test_a_database_that_is_another_cell_is_refused(
    two: Settings, cell_url: str, statement: str, why: str
) -> None:
    await _change(cell_url, statement)
    with pytest.raises(DatabaseRefusedError, match=why):
        await _open(two)


async def test_another_cell_is_never_taken_for_cell_0(two: Settings, cell_url: str) -> None:
    swapped = two.model_copy(update={"database_url": cell_url})
    with pytest.raises(DatabaseRefusedError, match="DATABASE_URL leads to cell 1, not to cell 0"):
        await _open(swapped)


async def test_every_new_connection_proves_which_cell_it_leads_to(
    two: Settings, cell_url: str
) -> None:
    cells = await _open(two)
    second = cells.numbered(1)
    assert second is not None
    await _change(cell_url, "UPDATE installation SET cell = 2")
    await second.row("SELECT 1")  # on the connection that was proven before
    second.cut_off()
    with pytest.raises(DatabaseRefusedError, match="its database is that of cell 2"):
        await second.row("SELECT 1 AS n")
    await cells.close()


async def test_a_cell_without_the_schema_is_waited_for_as_one_that_is_away(
    two: Settings, server_url: str
) -> None:
    with capture_logs() as told:
        cells = await _open(with_cells(two, {1: server_url}))
    assert [line["cell"] for line in told if line["event"] == "cell_away"] == [1]
    assert "run payintent migrate" in told[-1]["why"]
    await cells.close()


async def test_a_process_starts_while_a_cell_is_away_and_uses_it_when_it_is_back(
    two: Settings, cell_url: str
) -> None:
    proxy = DatabaseProxy(cell_url)
    await proxy.start()
    url = proxy.url
    await proxy.stop()
    with capture_logs() as told:
        service = await open_service(with_cells(two, {1: url}), {})
    assert [line["cell"] for line in told if line["event"] == "cell_away"] == [1]
    listed = await service.run_operation(ListCells(), ACTOR)
    assert [(cell.number, cell.answers) for cell in listed] == [(0, True), (1, False)]
    assert listed[1].why == "the database cannot be reached: connection refused"
    with pytest.raises(StorageUnavailableError):
        await service.cells.numbered(1).row("SELECT 1")  # type: ignore[union-attr]
    await proxy.start()

    async def is_shown() -> bool:
        return (await service.run_operation(ShowCell(number=1), ACTOR)).answers

    await until(is_shown, "a cell that rested is used again")
    shown = await service.run_operation(ShowCell(number=1), ACTOR)
    assert (shown.answers, shown.why) == (True, "")
    assert shown.version is not None
    assert int(shown.version.partition(".")[0]) >= 15
    assert shown.database_bytes is not None
    assert shown.database_bytes > 1_000_000
    await service.close()
    await proxy.stop()


@pytest.mark.parametrize("lost", ["nothing", "a move", "the cell"])
async def test_a_cell_that_was_away_is_compared_when_it_is_back(
    two: Settings, cell_url: str, world: World, lost: str
) -> None:
    proxy = DatabaseProxy(cell_url)
    await proxy.start()
    url = proxy.url
    await proxy.stop()
    if lost == "a move":
        await lose_place(two, world.merchant_id)
    elif lost == "the cell":
        await _change(two.database_url, "DELETE FROM cell WHERE number = 1")
    cells = await _open(with_cells(two, {1: url}))
    await cells.comparison.step()
    await proxy.start()
    if second := cells.numbered(1):
        await until_it_answers(second)
    if lost == "nothing":
        await cells.comparison.step()
    else:
        with pytest.raises(DatabaseRefusedError, match="Run payintent cell take-back 1"):
            await cells.comparison.step()
    await cells.close()
    await proxy.stop()


async def test_a_cell_that_is_added_after_a_process_began_is_none_that_cell_0_lost(
    two: Settings, cell_url: str
) -> None:
    proxy = DatabaseProxy(cell_url)
    await proxy.start()
    url = proxy.url
    await proxy.stop()
    await _change(two.database_url, "DELETE FROM cell WHERE number = 1")
    cells = await _open(with_cells(two, {1: url}))
    await proxy.start()
    await _change(two.database_url, "INSERT INTO cell (number) VALUES (1)")
    await cells.comparison.step()
    await cells.comparison.run(lambda: pytest.fail("it ends nothing"))  # nothing is left
    await cells.close()
    await proxy.stop()


async def test_what_a_cell_that_is_away_would_say_of_itself_is_empty(two: Settings) -> None:
    url = f"postgresql://127.0.0.1:{free_port()}/nothing"
    service = await open_service(with_cells(two, {1: url}), {})
    shown = await service.run_operation(ShowCell(number=1), ACTOR)
    assert (shown.answers, shown.version, shown.database_bytes) == (False, None, None)
    with pytest.raises(RefusedError, match="no cell 2"):
        await service.run_operation(ShowCell(number=2), ACTOR)
    await service.close()


async def test_a_cell_that_was_added_since_the_process_began_is_listed(
    world: World, cell_url: str
) -> None:
    await add_cell(world.service.settings.database_url, cell_url, 1)
    listed = await world.perform(ListCells())
    assert [(cell.number, cell.state, cell.answers) for cell in listed] == [
        (0, "open", True),
        (1, "open", False),
    ]
    assert listed[1].why == "it was added after this process began"
