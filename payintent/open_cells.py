"""Opens the databases of an installation: control first, then each other cell that it lists."""

import asyncio
from collections.abc import Callable, Sequence
from uuid import UUID

from payintent.config import Settings
from payintent.domain.errors import DatabaseRefusedError, StorageUnavailableError
from payintent.encryption import Encryption
from payintent.id_generator import IdGenerator
from payintent.log import get_logger
from payintent.operations.keyring import check_encryption_keys
from payintent.storage import cell_records, lost_changes
from payintent.storage.availability import wait_for_database
from payintent.storage.cells import Cells
from payintent.storage.database import Database
from payintent.storage.gated_database import GatedDatabase

_COMMAND = "payintent"  # the process of what is typed, which mends what keeps others from serving
_log = get_logger("cells")


async def open_cells(
    settings: Settings,
    encryption: Encryption,
    process: str,
    wait_s: float | None,
    notice: Callable[[], None] | None = None,
) -> Cells:
    """Wait for the control database, and check that it is used with our secrets.

    No other cell is waited for: one that is away delays its own payments alone. A database that is
    not the cell that the settings say is refused (`DatabaseRefusedError`), and so are settings
    that lack the address of a cell. So is, by what serves, a control that was restored and does not
    know any more in which cells merchants have payments: they would be made twice.
    """
    several = bool(settings.other_cells)
    control = GatedDatabase(settings, process) if several else Database(settings, process)
    await wait_for_database(control.open, wait_s, notice)
    opened = [control]
    try:
        await check_encryption_keys(control, encryption)
        opened += await _others(settings, process, control)
        await asyncio.gather(*map(_reach, opened[1:]))
        if process != _COMMAND:
            await _require_nothing_lost(settings, control, opened[1:])
    except BaseException:
        await asyncio.gather(*(database.close() for database in opened))
        raise
    if len(opened) > 1:
        for database in opened:
            database.id_generator.checkout_seal = encryption.checkout_seal()
    return Cells(*opened, kept_s=settings.api_key_cache_s)


async def _others(settings: Settings, process: str, control: Database) -> list[Database]:
    """Make the databases of the cells that control lists; addresses of others wait to be used."""
    installation = await cell_records.read_installation(control)
    if installation.cell != 0:
        raise DatabaseRefusedError(f"DATABASE_URL leads to cell {installation.cell}, not to cell 0")
    numbers = [cell.number for cell in await cell_records.list_cells(control) if cell.number]
    addresses = settings.other_cells
    if unknown := [str(number) for number in numbers if number not in addresses]:
        raise DatabaseRefusedError(
            f"this installation has cell {', '.join(unknown)}, and PAYINTENT_CELLS does not say "
            "where that is"
        )
    return [_make(addresses[number], process, number, installation.id) for number in numbers]


def _make(settings: Settings, process: str, number: int, installation_id: UUID) -> Database:
    return GatedDatabase(
        settings,
        process,
        id_generator=IdGenerator(cell=number),
        check=cell_records.proving_cell(number, installation_id),
    )


async def _reach(database: Database) -> None:
    number = database.id_generator.cell
    try:
        await database.open()
    except DatabaseRefusedError as error:
        raise DatabaseRefusedError(f"cell {number}: {error}") from error
    except StorageUnavailableError as error:
        _log.warning("cell_away", cell=number, why=str(error))


async def _require_nothing_lost(
    settings: Settings, control: Database, others: Sequence[Database]
) -> None:
    installation = await cell_records.read_installation(control)
    numbers = {database.id_generator.cell for database in others}
    unknown = [
        _make(address, _COMMAND, number, installation.id)
        for number, address in settings.other_cells.items()
        if number not in numbers
    ]
    checks = [*(_require_known(control, cell) for cell in others), *map(_require_unused, unknown)]
    await asyncio.gather(*checks)


async def _require_known(control: Database, cell: Database) -> None:
    """Refuse where a cell knows more of merchants than control; one that is away is passed over."""
    number = cell.id_generator.cell
    try:
        lost = await lost_changes.find_lost(control, cell)
    except StorageUnavailableError:
        return
    if lost:
        raise _restored(number, lost_changes.name_some(lost))


async def _require_unused(cell: Database) -> None:
    """Refuse where an address that control has no cell for leads to one of its cells."""
    try:
        await cell.open()
    except StorageUnavailableError:  # it is none, or away
        return
    finally:
        await cell.close()
    raise _restored(cell.id_generator.cell, "that it is there")


def _restored(number: int, lost: str) -> DatabaseRefusedError:
    return DatabaseRefusedError(
        f"cell 0 does not know any more what cell {number} does: {lost}. Was it restored? "
        f"Run payintent cell take-back {number}"
    )
