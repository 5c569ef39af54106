"""Where gateways' files are taken from; each source has a folder for each account."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from stat import S_ISREG
from typing import Protocol

from payintent.storage.reconciliation_runs import FoundFile

_PAGE_FILES = 1_000
_NAME_MAX = 200
_ACCOUNT_DIGITS_MAX = 18
#: Endings of files that are still being written.
_UNFINISHED = (".part", ".tmp", ".filepart")


class SourceUnavailableError(Exception):
    """A folder or a store cannot be read; the next look tries again."""


class FileSource(Protocol):
    name: str

    def walk_files(self) -> AsyncGenerator[list[FoundFile]]:
        """Give the files of all accounts, some at a time; raises `SourceUnavailableError`.

        Files stay where they are after their comparison, so there may be very many.
        """
        ...

    def open(self, file: FoundFile) -> AbstractAsyncContextManager[Path]:
        """Give a file on this machine, as long as the context; raises `SourceUnavailableError`."""
        ...

    async def close(self) -> None: ...


class FolderSource:
    """A folder of this machine: `<folder>/<account>/<file>`."""

    name = "folder"

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    async def walk_files(self) -> AsyncGenerator[list[FoundFile]]:
        try:
            paths = await asyncio.to_thread(self._list_paths)
        except OSError as error:
            raise SourceUnavailableError(error.strerror or type(error).__name__) from error
        for start in range(0, len(paths), _PAGE_FILES):
            page = await asyncio.to_thread(self._find, paths[start : start + _PAGE_FILES])
            if page:
                yield page

    @asynccontextmanager
    async def open(self, file: FoundFile) -> AsyncGenerator[Path]:
        yield self._folder / str(file.account_id) / file.name

    async def close(self) -> None:
        """Do nothing: no file stays open."""

    def _list_paths(self) -> list[tuple[int, Path]]:
        """List what may be files, each with its account."""
        return [
            (account_id, path)
            for account in sorted(self._folder.iterdir())
            if (account_id := parse_account_id(account.name)) is not None and account.is_dir()
            for path in sorted(account.iterdir())
            if is_file_name(path.name)
        ]

    def _find(self, paths: Sequence[tuple[int, Path]]) -> list[FoundFile]:
        """Find the files of these; what is none, or has gone since, is left out."""
        found: list[FoundFile] = []
        for account_id, path in paths:
            try:
                status = path.stat()
            except OSError:
                continue
            if S_ISREG(status.st_mode):
                version = f"{status.st_size}-{status.st_mtime_ns}"
                found.append(
                    FoundFile(
                        source=self.name, account_id=account_id, name=path.name, version=version
                    )
                )
        return found


def is_file_name(name: str) -> bool:
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
