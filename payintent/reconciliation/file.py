"""Parse a gateway's CSV file of payments, refunds, disputes and payouts."""

import csv
import hashlib
import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

from payintent.core import ids
from payintent.core.errors import quote_input
from payintent.core.money import get_minor_decimals, to_smallest_unit
from payintent.gateways.settlement_reports import (
    FileLayout,
    ListedPayout,
    PayoutLine,
    ProviderFileLine,
)

HEADER = ("type", "reference", "our_reference", "amount", "currency", "at")
HEADER_WITH_FEE = (*HEADER, "fee")
_DAY_CHARS = len("2026-11-21")
#: Id prefixes of `our_reference` by type. Gateways do not know our dispute ids.
_TYPES = {"payment": ids.SESSION, "refund": ids.REFUND, "dispute": "", "dispute_reversal": ""}
_REFERENCE_MAX = 200
_AMOUNT = re.compile(r"(0|[1-9][0-9]{0,17})(\.[0-9]{1,18})?", re.ASCII)
_BANK_CURRENCY = re.compile(r"[A-Z]{3}", re.ASCII)  # token symbols are longer
_CURRENCY = re.compile(r"[A-Z0-9]{3,12}", re.ASCII)
_AT = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_PAYOUT = "payout"
_TYPE_RULE = "type must be payment, refund, dispute, dispute_reversal or payout"
_REFERENCE_RULE = f"reference must have 1 to {_REFERENCE_MAX} printable characters"
_OUR_REFERENCE_RULE = f"our_reference must have at most {_REFERENCE_MAX} printable characters"
_AMOUNT_RULE = "amount must be a plain decimal above zero, such as 12.00"
_FEE_RULE = "fee must be a plain decimal, such as 0.30, or empty"
_NO_FEE_RULE = "only a payout can have a fee"
_MONEY_RULE = "a payout must be in an ISO 4217 currency"
_CURRENCY_RULE = "currency must be a code such as USD"
_AT_RULE = "column at must be a time such as 2026-11-21T08:00:00Z"
_MICROSECONDS_CHARS = len("2026-11-21T08:00:00.000000Z")
_MICROSECONDS = re.compile(r"(\.\d{6})\d+")
PROBLEMS_MAX = 20
_LINE_CHARS_MAX = 4_000
_BLANK_LINES_MAX = 100  # before the header
_READ_BYTES = 64 * 1024


def _parse_line_with_fee(number: int, row: Sequence[str]) -> ProviderFileLine | PayoutLine:
    if len(row) != len(HEADER_WITH_FEE):
        raise ValueError(f"the line must have {len(HEADER_WITH_FEE)} columns, not {len(row)}")
    return _parse_line(number, row[:-1], row[-1])


def _parse_line(number: int, row: Sequence[str], fee: str = "") -> ProviderFileLine | PayoutLine:
    if len(row) != len(HEADER):
        raise ValueError(f"the line must have {len(HEADER)} columns, not {len(row)}")
    kind, reference, our_reference, amount, currency, at = row
    time = _parse_time(at)
    checks = (
        (kind in _TYPES or kind == _PAYOUT, _TYPE_RULE, kind),
        (reference != "" and _is_reference(reference), _REFERENCE_RULE, reference),
        (_is_reference(our_reference), _OUR_REFERENCE_RULE, our_reference),
        (_AMOUNT.fullmatch(amount) and Decimal(amount), _AMOUNT_RULE, amount),
        (_CURRENCY.fullmatch(currency), _CURRENCY_RULE, currency),
    )
    for is_valid, rule, text in checks:
        if not is_valid:
            raise ValueError(f"{rule}, not {quote_input(text)}")
    if time is None:
        raise ValueError(f"{_AT_RULE}, not {quote_input(at)}")
    if kind == _PAYOUT:
        return PayoutLine(number=number, payout=_parse_payout(row, fee), at=time)
    if fee:
        raise ValueError(f"{_NO_FEE_RULE}, but this {kind} has {quote_input(fee)}")
    prefix = _TYPES[kind]
    return ProviderFileLine(
        number=number,
        type=kind,
        reference=reference,
        our_id=_parse_our_id(prefix, our_reference) if our_reference and prefix else None,
        amount=Decimal(amount),
        currency=currency,
        at=time,
    )


def _parse_payout(row: Sequence[str], fee: str) -> ListedPayout:
    _, reference, _, amount, currency, at = row
    if not _BANK_CURRENCY.fullmatch(currency):
        raise ValueError(f"{_MONEY_RULE}, not in {quote_input(currency)}")
    if fee and not _AMOUNT.fullmatch(fee):
        raise ValueError(f"{_FEE_RULE}, not {quote_input(fee)}")
    return ListedPayout(
        reference=reference,
        amount_minor=_to_minor_units("amount", amount, currency),
        fee_minor=_to_minor_units("fee", fee, currency) if fee else None,
        currency=currency,
        paid_on=date.fromisoformat(at[:_DAY_CHARS]),  # the bank's local date
    )


def _to_minor_units(name: str, text: str, currency: str) -> int:
    decimals = get_minor_decimals(currency)
    amount_minor = to_smallest_unit(Decimal(text), decimals)
    if amount_minor is None:
        raise ValueError(
            f"{name} of a payout in {currency} must have at most {decimals} decimals,"
            f" not {quote_input(text)}"
        )
    return amount_minor


def _is_reference(text: str) -> bool:
    return len(text) <= _REFERENCE_MAX and text.isprintable()


def _parse_time(text: str) -> datetime | None:
    """Parse an RFC 3339 time and truncate it to microseconds; None if it is invalid."""
    if not _AT.fullmatch(text):
        return None
    try:
        if len(text) > _MICROSECONDS_CHARS:
            text = _MICROSECONDS.sub(r"\1", text)
        return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _parse_our_id(prefix: str, text: str) -> UUID | None:
    """Parse one of our ids, with its prefix or as a plain UUID; None if it is invalid."""
    try:
        return ids.parse_id(prefix, text) or UUID(text)
    except ValueError:
        return None


GENERIC_LAYOUTS = (
    FileLayout(
        name="generic", matches=lambda first_row: tuple(first_row) == HEADER, read=_parse_line
    ),
    FileLayout(
        name="generic with fees",
        matches=lambda first_row: tuple(first_row) == HEADER_WITH_FEE,
        read=_parse_line_with_fee,
    ),
)


class InvalidProviderFileError(Exception):
    """A file is invalid; `problems` describes the first errors. Nothing was written."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class _UnreadableFileError(Exception):
    """The rest of the file cannot be read."""


def _ignore_progress(count: int) -> None:
    del count


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderFile:
    """A file with a known digest, in our generic layout or one of its gateway's layouts."""

    path: Path = field(repr=False)
    sha256: str
    layouts: Sequence[FileLayout] = field(default=(), repr=False, compare=False)
    on_progress: Callable[[int], None] = field(default=_ignore_progress, repr=False, compare=False)

    def read(self) -> Iterator[ProviderFileLine | PayoutLine]:
        """Yield the lines.

        Raises `InvalidProviderFileError` after the last line if any line is invalid or the file's
        content does not match the digest.
        """
        digest = hashlib.sha256()
        problems: list[str] = []
        invalid_count = 0
        for item in _parse_file(self.path, self.layouts, digest, self.on_progress):
            if isinstance(item, str):
                invalid_count += 1
                problems += [item] if invalid_count <= PROBLEMS_MAX else []
            elif not problems:
                yield item
        if invalid_count > PROBLEMS_MAX:
            problems.append(f"and {invalid_count - PROBLEMS_MAX} more")
        if problems:
            raise InvalidProviderFileError(problems)
        if digest.hexdigest() != self.sha256:
            raise InvalidProviderFileError(["the file changed while it was being read"])


def open_provider_file(
    path: Path, on_progress: Callable[[int], None] = _ignore_progress
) -> ProviderFile:
    """Compute a file's digest. Raises `InvalidProviderFileError` if the file cannot be read.

    `on_progress` is called with the size of each read, both now and when the lines are read.
    """
    if not path.is_file():
        raise InvalidProviderFileError([f"{quote_input(str(path))} is not a file"])
    digest = hashlib.sha256()
    try:
        with io.FileIO(path) as raw:
            reader = io.BufferedReader(_DigestingReader(raw, digest, on_progress))
            while reader.read(_READ_BYTES):
                pass
    except OSError as error:
        raise InvalidProviderFileError([_describe_os_error(error)]) from error
    return ProviderFile(path=path, sha256=digest.hexdigest(), on_progress=on_progress)


class _DigestingReader(io.RawIOBase):
    def __init__(self, raw: io.FileIO, digest: Any, on_progress: Callable[[int], None]) -> None:
        super().__init__()
        self._raw = raw
        self._digest = digest
        self._on_progress = on_progress

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        count = self._raw.readinto(buffer) or 0
        self._digest.update(memoryview(buffer)[:count])
        self._on_progress(count)
        return count


def _parse_file(
    path: Path, layouts: Sequence[FileLayout], digest: Any, on_progress: Callable[[int], None]
) -> Iterator[ProviderFileLine | PayoutLine | str]:
    layout = find_layout(path, layouts)
    try:
        with io.FileIO(path) as raw:
            reader = io.BufferedReader(_DigestingReader(raw, digest, on_progress))
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
    hint = "; or use one of the gateway's layouts" if layouts else ""
    return f"line 1: the header must be {','.join(HEADER)}, optionally followed by fee{hint}"


def _is_blank(row: Sequence[str]) -> bool:
    """Return whether a line is blank; editors and spreadsheets add such lines."""
    return not any(cell.strip() for cell in row)


def find_layout(path: Path, layouts: Sequence[FileLayout]) -> FileLayout | None:
    """Return the layout that matches the first line that is not blank, or None."""
    for layout in (*GENERIC_LAYOUTS, *layouts):
        try:
            with path.open("rb") as raw:
                raw_lines = (raw.readline(_LINE_CHARS_MAX) for _ in range(_BLANK_LINES_MAX + 1))
                lines = (line.decode(layout.encoding) for line in raw_lines)
                rows = csv.reader(lines, strict=True)
                first_row = next((row for row in rows if not _is_blank(row)), list[str]())
        except (OSError, UnicodeDecodeError, csv.Error):
            continue
        if layout.matches(first_row):
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
            raise _UnreadableFileError(f"the line is longer than {_LINE_CHARS_MAX} characters")
        yield line
