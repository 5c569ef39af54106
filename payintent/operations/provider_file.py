"""A gateway's own list of payments and refunds: a CSV file, streamed line by line."""

import csv
import hashlib
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

from payintent.domain import ids
from payintent.operations.validation import quote_input
from payintent.storage.reconciliation import ProviderFileLine

HEADER = ("type", "reference", "our_reference", "amount", "currency", "at")
_TYPES = {"payment": ids.SESSION, "refund": ids.REFUND}  # the type of the id in `our_reference`
_TOLD_MAX = 20
_LINE_CHARS_MAX = 4_000
_REFERENCE_MAX = 200
_AMOUNT = re.compile(r"(0|[1-9][0-9]{0,17})(\.[0-9]{1,18})?", re.ASCII)
_CURRENCY = re.compile(r"[A-Z0-9]{3,12}", re.ASCII)
_AT = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_TYPE_WORDS = "type must be payment or refund"
_REFERENCE_WORDS = f"reference has 1 to {_REFERENCE_MAX} printable characters"
_OURS_WORDS = f"our_reference has at most {_REFERENCE_MAX} printable characters"
_AMOUNT_WORDS = "amount must be a plain decimal above zero, such as 12.00"
_CURRENCY_WORDS = "currency must be a code such as USD"
_AT_WORDS = "at must be a time such as 2026-11-21T08:00:00Z"
_MICROSECONDS = re.compile(r"(\.\d{6})\d+")


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
    """A file of valid lines, as it was when it was checked."""

    path: Path = field(repr=False)
    sha256: str
    lines: int
    first: datetime | None  # the earliest `at`
    last: datetime | None
    progress: Callable[[int], None] = field(default=_quiet, repr=False, compare=False)

    def read(self) -> Iterator[ProviderFileLine]:
        """Yield the lines again; raises `InvalidProviderFileError` where the file has changed."""
        digest = hashlib.sha256()
        for found in _parsed(self.path, digest, self.progress):
            if isinstance(found, str):
                raise InvalidProviderFileError([found])
            yield found
        if digest.hexdigest() != self.sha256:
            raise InvalidProviderFileError(["the file has changed while it was read"])


def read_provider_file(path: Path, progress: Callable[[int], None] = _quiet) -> ProviderFile:
    """Read a whole file; raises `InvalidProviderFileError` with the first bad lines.

    `progress` is called with the number of bytes of each read.
    """
    if not path.is_file():
        raise InvalidProviderFileError([f"{quote_input(str(path))} is no file"])
    digest = hashlib.sha256()
    problems: list[str] = []
    count, bad = 0, 0
    first: datetime | None = None
    last: datetime | None = None
    for found in _parsed(path, digest, progress):
        if isinstance(found, str):
            bad += 1
            problems += [found] if bad <= _TOLD_MAX else []
            continue
        count += 1
        first = found.at if first is None else min(first, found.at)
        last = found.at if last is None else max(last, found.at)
    if bad:
        raise InvalidProviderFileError(
            problems + ([f"and {bad - _TOLD_MAX} more"] if bad > _TOLD_MAX else [])
        )
    return ProviderFile(
        path=path,
        sha256=digest.hexdigest(),
        lines=count,
        first=first,
        last=last,
        progress=progress,
    )


class _Watched(io.RawIOBase):
    """A file that is hashed while it is read."""

    def __init__(self, raw: io.FileIO, digest: Any, progress: Callable[[int], None]) -> None:
        super().__init__()
        self._raw = raw
        self._digest = digest
        self._progress = progress

    def readable(self) -> bool:
        """Tell that the stream can be read."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Read into a buffer; returns the number of bytes."""
        count = self._raw.readinto(buffer) or 0
        self._digest.update(memoryview(buffer)[:count])
        self._progress(count)
        return count


def _parsed(
    path: Path, digest: Any, progress: Callable[[int], None]
) -> Iterator[ProviderFileLine | str]:
    """Yield each line, or what is wrong with it."""
    try:
        with io.FileIO(path) as raw:
            watched = io.BufferedReader(_Watched(raw, digest, progress))
            text = io.TextIOWrapper(watched, encoding="utf-8-sig", newline="")
            yield from _rows(csv.reader(_bounded(text), strict=True))
    except OSError as error:
        yield f"the file cannot be read: {error.strerror}"


def _rows(reader: Any) -> Iterator[ProviderFileLine | str]:
    try:
        header: list[str] | None = next(reader, None)
        if header is None or tuple(header) != HEADER:
            yield f"line 1: the header must be {','.join(HEADER)}"
            return
        for row in reader:
            if row:
                yield _line(reader.line_num, row)
    except UnicodeDecodeError:
        yield f"after line {reader.line_num}: the file is not UTF-8"
    except csv.Error as error:
        yield f"line {reader.line_num}: {error}"
    except _UnreadableFileError as error:
        yield f"line {reader.line_num + 1}: {error}"


def _bounded(text: io.TextIOWrapper) -> Iterator[str]:
    """Yield lines of bounded length."""
    while line := text.readline(_LINE_CHARS_MAX + 1):
        if len(line) > _LINE_CHARS_MAX:
            raise _UnreadableFileError(f"a line has at most {_LINE_CHARS_MAX} characters")
        yield line


def _line(number: int, row: list[str]) -> ProviderFileLine | str:
    if len(row) != len(HEADER):
        return f"line {number}: there are {len(row)} columns, not {len(HEADER)}"
    kind, reference, ours, amount, currency, at = row
    when = _time(at)
    checks = (
        (kind in _TYPES, _TYPE_WORDS, kind),
        (reference != "" and _is_name(reference), _REFERENCE_WORDS, reference),
        (_is_name(ours), _OURS_WORDS, ours),
        (_AMOUNT.fullmatch(amount) and Decimal(amount), _AMOUNT_WORDS, amount),
        (_CURRENCY.fullmatch(currency), _CURRENCY_WORDS, currency),
    )
    for right, what, text in checks:
        if not right:
            return f"line {number}: {what}, not {quote_input(text)}"
    if when is None:
        return f"line {number}: {_AT_WORDS}, not {quote_input(at)}"
    return ProviderFileLine(
        number=number,
        type=kind,
        reference=reference,
        our_id=_our_id(_TYPES[kind], ours),
        amount=Decimal(amount),
        currency=currency,
        at=when,
    )


def _is_name(text: str) -> bool:
    return len(text) <= _REFERENCE_MAX and text.isprintable()


def _time(text: str) -> datetime | None:
    """Parse an RFC 3339 time; digits beyond microseconds are cut off."""
    if not _AT.fullmatch(text):
        return None
    try:
        return datetime.fromisoformat(_MICROSECONDS.sub(r"\1", text.upper())).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _our_id(prefix: str, text: str) -> UUID | None:
    """Parse an id of ours, as we write it or as gateways get it; None for any other text."""
    try:
        return ids.parse_id(prefix, text) or UUID(text)
    except ValueError:
        return None
