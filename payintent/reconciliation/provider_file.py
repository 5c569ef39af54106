"""A gateway's own list of payments, refunds and payouts: a CSV file, streamed line by line."""

import csv
import hashlib
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from payintent.domain.errors import quote_input
from payintent.domain.settlement_file import FileLayout, PayoutLine, ProviderFileLine
from payintent.reconciliation.generic_layout import GENERIC, HEADER

_TOLD_MAX = 20
_LINE_CHARS_MAX = 4_000
_BLANK_LINES_MAX = 100  # before the header
_READ_BYTES = 64 * 1024


class InvalidProviderFileError(Exception):
    """A file has invalid lines; nothing was written. `problems` describes the first of them."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class _UnreadableFileError(Exception):
    """The rest of the file cannot be read."""


def _quiet(count: int) -> None:
    del count


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderFile:
    """A file by its digest; it has one of the layouts of its gateway, or our own."""

    path: Path = field(repr=False)
    sha256: str
    layouts: Sequence[FileLayout] = field(default=(), repr=False, compare=False)
    progress: Callable[[int], None] = field(default=_quiet, repr=False, compare=False)

    def read(self) -> Iterator[ProviderFileLine | PayoutLine]:
        """Yield the lines; raises `InvalidProviderFileError` with the first bad ones.

        It is raised too where the file is not that of the digest.
        """
        digest = hashlib.sha256()
        problems: list[str] = []
        bad = 0
        for found in _parsed(self.path, self.layouts, digest, self.progress):
            if isinstance(found, str):
                bad += 1
                problems += [found] if bad <= _TOLD_MAX else []
            elif not problems:
                yield found
        if bad > _TOLD_MAX:
            problems.append(f"and {bad - _TOLD_MAX} more")
        if problems:
            raise InvalidProviderFileError(problems)
        if digest.hexdigest() != self.sha256:
            raise InvalidProviderFileError(["the file has changed while it was read"])


def open_provider_file(path: Path, progress: Callable[[int], None] = _quiet) -> ProviderFile:
    """Open a file by its digest; raises `InvalidProviderFileError` where there is none.

    `progress` is called with the number of bytes of each read, now and when its lines are read.
    """
    if not path.is_file():
        raise InvalidProviderFileError([f"{quote_input(str(path))} is no file"])
    digest = hashlib.sha256()
    try:
        with io.FileIO(path) as raw:
            watched = io.BufferedReader(_Watched(raw, digest, progress))
            while watched.read(_READ_BYTES):
                pass
    except OSError as error:
        raise InvalidProviderFileError([_unreadable(error)]) from error
    return ProviderFile(path=path, sha256=digest.hexdigest(), progress=progress)


class _Watched(io.RawIOBase):
    def __init__(self, raw: io.FileIO, digest: Any, progress: Callable[[int], None]) -> None:
        super().__init__()
        self._raw = raw
        self._digest = digest
        self._progress = progress

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        count = self._raw.readinto(buffer) or 0
        self._digest.update(memoryview(buffer)[:count])
        self._progress(count)
        return count


def _parsed(
    path: Path, layouts: Sequence[FileLayout], digest: Any, progress: Callable[[int], None]
) -> Iterator[ProviderFileLine | PayoutLine | str]:
    layout = find_layout(path, layouts)
    try:
        with io.FileIO(path) as raw:
            watched = io.BufferedReader(_Watched(raw, digest, progress))
            if layout is None:
                while watched.read(_LINE_CHARS_MAX):
                    pass
                yield _no_layout(layouts)
                return
            text = io.TextIOWrapper(watched, encoding=layout.encoding, newline="")
            yield from _rows(csv.reader(_bounded(text), strict=True), layout)
    except OSError as error:
        yield _unreadable(error)


def _unreadable(error: OSError) -> str:
    return f"the file cannot be read: {error.strerror}"


def _no_layout(layouts: Sequence[FileLayout]) -> str:
    others = ", or the file one of the gateway's own" if layouts else ""
    return f"line 1: the header must be {','.join(HEADER)}, with or without fee after it{others}"


def is_blank(row: Sequence[str]) -> bool:
    """Tell whether a line has no text: editors and spreadsheets leave such lines."""
    return not any(cell.strip() for cell in row)


def find_layout(path: Path, layouts: Sequence[FileLayout]) -> FileLayout | None:
    """Find the layout that the first line with text shows; None if the file has none of them."""
    for layout in (*GENERIC, *layouts):
        try:
            with path.open("rb") as raw:
                read = (raw.readline(_LINE_CHARS_MAX) for _ in range(_BLANK_LINES_MAX + 1))
                lines = (line.decode(layout.encoding) for line in read)
                rows = csv.reader(lines, strict=True)
                first = next((row for row in rows if not is_blank(row)), list[str]())
        except (OSError, UnicodeDecodeError, csv.Error):
            continue
        if layout.matches(first):
            return layout
    return None


def _rows(reader: Any, layout: FileLayout) -> Iterator[ProviderFileLine | PayoutLine | str]:
    read = layout.read
    try:
        rows = (row for row in reader if not is_blank(row))
        if layout.has_header:
            next(rows, None)
        for row in rows:
            try:
                line = read(reader.line_num, row)
            except ValueError as error:
                yield f"line {reader.line_num}: {error}"
            else:
                if line is not None:
                    yield line
    except UnicodeDecodeError:
        yield f"after line {reader.line_num}: the file is not {_charset(layout)}"
    except csv.Error as error:
        yield f"line {reader.line_num}: {error}"
    except _UnreadableFileError as error:
        yield f"line {reader.line_num + 1}: {error}"


def _charset(layout: FileLayout) -> str:
    return "UTF-8" if layout.encoding.startswith("utf-8") else layout.encoding


def _bounded(text: io.TextIOWrapper) -> Iterator[str]:
    while line := text.readline(_LINE_CHARS_MAX + 1):
        if len(line) > _LINE_CHARS_MAX:
            raise _UnreadableFileError(f"a line has at most {_LINE_CHARS_MAX} characters")
        yield line
