"""Opens the databases of an installation: control first, then each other cell that it lists."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from uuid import UUID

from payintent.config import Settings
from payintent.domain.errors import DatabaseRefusedError, StorageUnavailableError
from payintent.encryption import Encryption
from payintent.id_generator import IdGenerator
from payintent.log import get_logger
from payintent.operations.keyring import check_encryption_keys
from payintent.storage import cell_records
from payintent.storage.availability import wait_for_database
from payintent.storage.cell_comparison import CellComparison
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
    know any more in which cells merchants have payments: they would be made twice. A cell that is
    away is compared when it is back, by whoever runs the `comparison` of what is returned.
    """
    several = bool(settings.other_cells)
    control = GatedDatabase(settings, process) if several else Database(settings, process)
    await wait_for_database(control.open, wait_s, notice)
    opened = [control]
    try:
        await check_encryption_keys(control, encryption)
        opened += await _others(settings, process, control)
        await asyncio.gather(*map(_reach, opened[1:]))
        comparison = CellComparison(control)
        if process != _COMMAND:
            openers = await _openers_of_unknown(settings, control)
            comparison = CellComparison(control, opened[1:], openers)
            await comparison.step()
    except BaseException:
        await asyncio.gather(*(database.close() for database in opened))
        raise
    if len(opened) > 1:
        for database in opened:
            database.id_generator.checkout_seal = encryption.checkout_seal()
    return Cells(*opened, kept_s=settings.api_key_cache_s, comparison=comparison)


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


async def _openers_of_unknown(
    settings: Settings, control: Database
) -> Sequence[Callable[[], Database]]:
    """Give what opens each address that control has no cell for."""
    installation = await cell_records.read_installation(control)
    addresses = settings.other_cells
    unknown = addresses.keys() - await cell_records.pick_cells(control, list(addresses))
    return [
        partial(_make, addresses[number], _COMMAND, number, installation.id) for number in unknown
    ]


async def _reach(database: Database) -> None:
    number = database.id_generator.cell
    try:
        await database.open()
    except DatabaseRefusedError as error:
        raise DatabaseRefusedError(f"cell {number}: {error}") from error
    except StorageUnavailableError as error:
        _log.warning("cell_away", cell=number, why=str(error))
