"""Sources of gateways' files; each source has a folder per account."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from stat import S_ISREG
from typing import Protocol

from payintent.storage.reconciliation_runs import SourceFile

_PAGE_FILES = 1_000
_NAME_MAX = 200
_ACCOUNT_DIGITS_MAX = 18
#: Suffixes of files that are still being written.
_UNFINISHED = (".part", ".tmp", ".filepart")


class SourceUnavailableError(Exception):
    """A folder or store cannot be read; the next poll tries again."""


class FileSource(Protocol):
    name: str

    def walk_files(self) -> AsyncGenerator[list[SourceFile]]:
        """Yield the files of all accounts in pages (`SourceUnavailableError`).

        There may be many: files stay in the source after their comparison.
        """
        ...

    def open(self, file: SourceFile) -> AbstractAsyncContextManager[Path]:
        """Provide a file as a local path within the context (`SourceUnavailableError`)."""
        ...

    async def close(self) -> None: ...


class FolderSource:
    """A local folder: `<folder>/<account>/<file>`."""

    name = "folder"

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    async def walk_files(self) -> AsyncGenerator[list[SourceFile]]:
        try:
            paths = await asyncio.to_thread(self._list_paths)
        except OSError as error:
            raise SourceUnavailableError(error.strerror or type(error).__name__) from error
        for start in range(0, len(paths), _PAGE_FILES):
            page = await asyncio.to_thread(self._stat_files, paths[start : start + _PAGE_FILES])
            if page:
                yield page

    @asynccontextmanager
    async def open(self, file: SourceFile) -> AsyncGenerator[Path]:
        yield self._folder / str(file.account_id) / file.name

    async def close(self) -> None:
        """Do nothing: no file stays open."""

    def _list_paths(self) -> list[tuple[int, Path]]:
        """List possible files with their accounts."""
        return [
            (account_id, path)
            for account in sorted(self._folder.iterdir())
            if (account_id := parse_account_id(account.name)) is not None and account.is_dir()
            for path in sorted(account.iterdir())
            if is_file_name(path.name)
        ]

    def _stat_files(self, paths: Sequence[tuple[int, Path]]) -> list[SourceFile]:
        """Return the regular files among the paths; skip files that no longer exist."""
        files: list[SourceFile] = []
        for account_id, path in paths:
            try:
                status = path.stat()
            except OSError:
                continue
            if S_ISREG(status.st_mode):
                version = f"{status.st_size}-{status.st_mtime_ns}"
                files.append(
                    SourceFile(
                        source=self.name, account_id=account_id, name=path.name, version=version
                    )
                )
        return files


def is_file_name(name: str) -> bool:
    return (
        0 < len(name) <= _NAME_MAX
        and name.isprintable()
        and not name.startswith(".")
        and not name.lower().endswith(_UNFINISHED)
    )


def parse_account_id(name: str) -> int | None:
    """Parse the name of an account's folder; None for any other folder."""
    if name.isascii() and name.isdecimal() and len(name) <= _ACCOUNT_DIGITS_MAX:
        return int(name)
    return None
