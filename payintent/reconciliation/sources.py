"""Where gateways' files are taken from; each source has a folder for each account."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

from payintent.storage.reconciliation_runs import FoundFile

FILES_MAX = 10_000  # that one look takes; more wait for the next
_NAME_MAX = 200
_ACCOUNT_DIGITS_MAX = 18
#: Endings of files that are still being written.
_UNFINISHED = (".part", ".tmp", ".filepart")


class SourceUnavailableError(Exception):
    """A folder or a store cannot be read; the next look tries again."""


class FileSource(Protocol):
    """A place that gateways' files are put into."""

    name: str

    async def list_files(self) -> list[FoundFile]:
        """List the files of accounts; raises `SourceUnavailableError`."""
        ...

    def open(self, file: FoundFile) -> AbstractAsyncContextManager[Path]:
        """Give a file on this machine, as long as the context; raises `SourceUnavailableError`."""
        ...

    async def close(self) -> None:
        """Close what is open."""
        ...


class FolderSource:
    """A folder of this machine: `<folder>/<account>/<file>`."""

    name = "folder"

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    async def list_files(self) -> list[FoundFile]:
        """List the files of accounts; raises `SourceUnavailableError`."""
        try:
            return await asyncio.to_thread(self._list)
        except OSError as error:
            raise SourceUnavailableError(error.strerror or type(error).__name__) from error

    @asynccontextmanager
    async def open(self, file: FoundFile) -> AsyncGenerator[Path]:
        """Give the path of a file."""
        yield self._folder / str(file.account_id) / file.name

    async def close(self) -> None:
        """Do nothing: no file stays open."""

    def _list(self) -> list[FoundFile]:
        found: list[FoundFile] = []
        for account in sorted(self._folder.iterdir()):
            account_id = parse_account_id(account.name)
            if account_id is None or not account.is_dir():
                continue
            for path in sorted(account.iterdir()):
                if not is_file_name(path.name) or not path.is_file():
                    continue
                status = path.stat()
                version = f"{status.st_size}-{status.st_mtime_ns}"
                found.append(
                    FoundFile(
                        source=self.name, account_id=account_id, name=path.name, version=version
                    )
                )
                if len(found) == FILES_MAX:
                    return found
        return found


def is_file_name(name: str) -> bool:
    """Tell whether a name is that of a finished file."""
    return (
        0 < len(name) <= _NAME_MAX
        and name.isprintable()
        and not name.startswith(".")
        and not name.lower().endswith(_UNFINISHED)
    )


def parse_account_id(name: str) -> int | None:
    """Read the name of an account's folder; None for any other."""
    if name.isascii() and name.isdecimal() and len(name) <= _ACCOUNT_DIGITS_MAX:
        return int(name)
    return None
