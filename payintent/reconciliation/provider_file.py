"""Read a gateway's CSV file of payments, refunds and payouts, line by line."""

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

_PROBLEMS_MAX = 20
_LINE_CHARS_MAX = 4_000
_BLANK_LINES_MAX = 100  # before the header
_READ_BYTES = 64 * 1024


class InvalidProviderFileError(Exception):
    """A file has invalid lines; `problems` describes the first of them. Nothing was written."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class _UnreadableFileError(Exception):
    """The rest of the file cannot be read."""


def _ignore_progress(count: int) -> None:
    del count


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderFile:
    """A file with a known digest, in a layout of its gateway or in our own layout."""

    path: Path = field(repr=False)
    sha256: str
    layouts: Sequence[FileLayout] = field(default=(), repr=False, compare=False)
    progress: Callable[[int], None] = field(default=_ignore_progress, repr=False, compare=False)

    def read(self) -> Iterator[ProviderFileLine | PayoutLine]:
        """Yield the lines.

        Raises `InvalidProviderFileError` at the end if lines are invalid or the file's content
        does not match the digest.
        """
        digest = hashlib.sha256()
        problems: list[str] = []
        invalid = 0
        for item in _parse(self.path, self.layouts, digest, self.progress):
            if isinstance(item, str):
                invalid += 1
                problems += [item] if invalid <= _PROBLEMS_MAX else []
            elif not problems:
                yield item
        if invalid > _PROBLEMS_MAX:
            problems.append(f"and {invalid - _PROBLEMS_MAX} more")
        if problems:
            raise InvalidProviderFileError(problems)
        if digest.hexdigest() != self.sha256:
            raise InvalidProviderFileError(["the file changed while it was read"])


def open_provider_file(
    path: Path, progress: Callable[[int], None] = _ignore_progress
) -> ProviderFile:
    """Compute a file's digest (`InvalidProviderFileError` if the file cannot be read).

    `progress` gets the number of bytes of each read, now and again when the lines are read.
    """
    if not path.is_file():
        raise InvalidProviderFileError([f"{quote_input(str(path))} is not a file"])
    digest = hashlib.sha256()
    try:
        with io.FileIO(path) as raw:
            reader = io.BufferedReader(_DigestingReader(raw, digest, progress))
            while reader.read(_READ_BYTES):
                pass
    except OSError as error:
        raise InvalidProviderFileError([_describe_os_error(error)]) from error
    return ProviderFile(path=path, sha256=digest.hexdigest(), progress=progress)


class _DigestingReader(io.RawIOBase):
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


def _parse(
    path: Path, layouts: Sequence[FileLayout], digest: Any, progress: Callable[[int], None]
) -> Iterator[ProviderFileLine | PayoutLine | str]:
    layout = find_layout(path, layouts)
    try:
        with io.FileIO(path) as raw:
            reader = io.BufferedReader(_DigestingReader(raw, digest, progress))
            if layout is None:
                while reader.read(_LINE_CHARS_MAX):
                    pass
                yield _describe_layouts(layouts)
                return
            text = io.TextIOWrapper(reader, encoding=layout.encoding, newline="")
            yield from _parse_rows(csv.reader(_read_lines(text), strict=True), layout)
    except OSError as error:
        yield _describe_os_error(error)


def _describe_os_error(error: OSError) -> str:
    return f"the file cannot be read: {error.strerror}"


def _describe_layouts(layouts: Sequence[FileLayout]) -> str:
    gateway = ", or the file must have a layout of the gateway" if layouts else ""
    return f"line 1: the header must be {','.join(HEADER)}, optionally followed by fee{gateway}"


def _is_blank(row: Sequence[str]) -> bool:
    """Check if a line has no text; editors and spreadsheets leave such lines."""
    return not any(cell.strip() for cell in row)


def find_layout(path: Path, layouts: Sequence[FileLayout]) -> FileLayout | None:
    """Find the layout that matches the first line with text; None if none matches."""
    for layout in (*GENERIC, *layouts):
        try:
            with path.open("rb") as raw:
                raw_lines = (raw.readline(_LINE_CHARS_MAX) for _ in range(_BLANK_LINES_MAX + 1))
                lines = (line.decode(layout.encoding) for line in raw_lines)
                rows = csv.reader(lines, strict=True)
                first = next((row for row in rows if not _is_blank(row)), list[str]())
        except (OSError, UnicodeDecodeError, csv.Error):
            continue
        if layout.matches(first):
            return layout
    return None


def _parse_rows(reader: Any, layout: FileLayout) -> Iterator[ProviderFileLine | PayoutLine | str]:
    try:
        rows = (row for row in reader if not _is_blank(row))
        if layout.has_header:
            next(rows, None)
        for row in rows:
            try:
                line = layout.read(reader.line_num, row)
            except ValueError as error:
                yield f"line {reader.line_num}: {error}"
            else:
                if line is not None:
                    yield line
    except UnicodeDecodeError:
        encoding = "UTF-8" if layout.encoding.startswith("utf-8") else layout.encoding
        yield f"after line {reader.line_num}: the file is not {encoding}"
    except csv.Error as error:
        yield f"line {reader.line_num}: {error}"
    except _UnreadableFileError as error:
        yield f"line {reader.line_num + 1}: {error}"


def _read_lines(text: io.TextIOWrapper) -> Iterator[str]:
    while line := text.readline(_LINE_CHARS_MAX + 1):
        if len(line) > _LINE_CHARS_MAX:
            raise _UnreadableFileError(f"a line has at most {_LINE_CHARS_MAX} characters")
        yield line
