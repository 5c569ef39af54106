"""Exports of lists as CSV or JSON Lines, streamed page by page.

An export holds one page in memory, and reads each page in a separate transaction. Therefore, a slow
client does not hold a database connection or a snapshot.
"""

import asyncio
import time
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Hashable,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from payintent.core.errors import (
    ErrorCode,
    LockTimeoutError,
    NotFoundError,
    RefusedError,
    StorageUnavailableError,
)
from payintent.runtime.csv_format import write_csv
from payintent.runtime.json_format import encode_json
from payintent.runtime.log import get_logger

T = TypeVar("T")
PAGE_ROWS = 500
ROWS_MAX = 100_000
DURATION_MAX_S = 600.0
_CLAIM_S = DURATION_MAX_S + 60
_READS_MAX = 4  # concurrent queries for all exports of a process
_RETRY_S = 10
_log = get_logger("exports")


class IncompleteExportError(RefusedError):
    """An export ended before the last row. The message contains the reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(ErrorCode.BAD_REQUEST, f"{reason}; use narrower filters")
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Export(Generic[T]):
    """A list that is exported as a file. `make_fields` returns a row's values by column name.

    `pages` can contain empty pages. Reading a page must be quick.
    """

    name: str  # without extension
    columns: Sequence[str]
    pages: AsyncGenerator[Sequence[T]]
    make_fields: Callable[[T], Mapping[str, Any]]
    rows_max: int = ROWS_MAX


async def read_pages(
    read_page: Callable[[T | None, int], Awaitable[Sequence[T]]], page_rows: int = PAGE_ROWS
) -> AsyncGenerator[Sequence[T]]:
    """Yield the pages of a list.

    `read_page` receives the last row on the previous page (None for the first page) and a limit,
    and returns the rows that follow.
    """
    last: T | None = None
    while rows := await read_page(last, page_rows):
        yield rows
        if len(rows) < page_rows:
            return
        last = rows[-1]


@dataclass(frozen=True, slots=True, eq=False)
class ExportClaim:
    owner: Hashable
    expires_at: float


class ExportSlots:
    """Limits a process to one export per owner and a few concurrent queries."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._claims: dict[Hashable, ExportClaim] = {}
        self.reads = asyncio.Semaphore(_READS_MAX)

    def claim(self, owner: Hashable) -> ExportClaim:
        """Claim the owner's slot. Raises `RATE_LIMITED` if another export is using it.

        A claim expires, because a response that fails before it is sent does not release it.
        """
        now = self._monotonic()
        current = self._claims.get(owner)
        if current is not None and now < current.expires_at:
            raise RefusedError(
                ErrorCode.RATE_LIMITED,
                "Another export is still running. Try again when it has finished.",
                retry_after_s=_RETRY_S,
            )
        self._claims[owner] = claim = ExportClaim(owner, now + _CLAIM_S)
        return claim

    def release(self, claim: ExportClaim) -> None:
        if self._claims.get(claim.owner) is claim:
            del self._claims[claim.owner]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportTarget:
    """The requested format, and the person whose slot the export uses."""

    slots: ExportSlots
    owner: Hashable
    extension: str = "csv"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


async def _record_nothing() -> None:
    return


async def stream_export(
    export: Export[Any],
    target: ExportTarget,
    record: Callable[[], Awaitable[None]] = _record_nothing,
) -> StreamingResponse:
    """Respond with the rows of `export`.

    The first page is read before the response starts, so that an invalid filter results in an error
    response. Then `record` is called. If the export ends before the last row, its last line states
    the reason.
    """
    if target.extension not in _FORMATS:
        raise NotFoundError(f"the export format must be {' or '.join(_FORMATS)}")
    claim = target.slots.claim(target.owner)
    try:
        rows = await _read_next(export, target.slots)
        await record()
    except BaseException:
        target.slots.release(claim)
        raise
    return _ExportResponse(export, target, claim, rows)


class _ExportResponse(StreamingResponse):
    """A streaming response that releases its owner's slot when it ends."""

    def __init__(
        self,
        export: Export[Any],
        target: ExportTarget,
        claim: ExportClaim,
        rows: Sequence[Any] | None,
    ) -> None:
        self._export = export
        self._slots = target.slots
        self._claim = claim
        self._format = _FORMATS[target.extension]
        headers = {
            **target.headers,
            "Content-Disposition": f'attachment; filename="{export.name}.{target.extension}"',
            "X-Content-Type-Options": "nosniff",
        }
        super().__init__(self._write(rows), 200, headers, self._format.media_type)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if scope["method"] == "HEAD":
                self.body_iterator = _write_nothing()
            await super().__call__(scope, receive, send)
        finally:
            self._slots.release(self._claim)
            await self._export.pages.aclose()

    async def _write(self, rows: Sequence[Any] | None) -> AsyncGenerator[bytes]:
        export, ends_at = self._export, time.monotonic() + DURATION_MAX_S
        yield self._format.write_head(export.columns)
        remaining, reason = export.rows_max, None
        while rows is not None and reason is None:
            if rows:
                fields = [export.make_fields(row) for row in rows[:remaining]]
                yield self._format.write_rows(export.columns, fields)
            if len(rows) > remaining:
                reason = f"it is limited to {export.rows_max:,} rows"
            elif time.monotonic() >= ends_at:
                reason = f"it took longer than {DURATION_MAX_S / 60:.0f} minutes"
            else:
                remaining -= len(rows)
                try:
                    rows = await _read_next(export, self._slots)
                except (StorageUnavailableError, LockTimeoutError):
                    reason = "the database was temporarily unavailable"
                except IncompleteExportError as error:
                    reason = error.reason
        if reason is not None:
            _log.warning("export_incomplete", export=export.name, why=reason)
            yield self._format.write_notice(
                export.columns,
                f"INCOMPLETE: this export stopped here, because {reason}. Use narrower filters.",
            )


async def _read_next(export: Export[T], slots: ExportSlots) -> Sequence[T] | None:
    """Return the next page, or None after the last page."""
    async with slots.reads:
        async for rows in export.pages:
            return rows
    return None


async def _write_nothing() -> AsyncGenerator[bytes]:
    return
    yield


@dataclass(frozen=True, slots=True)
class _Format:
    media_type: str
    write_head: Callable[[Sequence[str]], bytes]
    write_rows: Callable[[Sequence[str], Iterable[Mapping[str, Any]]], bytes]
    write_notice: Callable[[Sequence[str], str], bytes]


def _write_csv_rows(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> bytes:
    return write_csv([row[name] for name in columns] for row in rows).encode()


def _write_json_lines(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> bytes:
    lines = (encode_json({name: row[name] for name in columns}) for row in rows)
    return b"".join(line + b"\n" for line in lines)


_FORMATS = {
    "csv": _Format(
        "text/csv; charset=utf-8; header=present",
        lambda columns: write_csv([columns]).encode(),
        _write_csv_rows,
        # All lines of a CSV file have the same number of cells.
        lambda columns, text: write_csv([[text, *[""] * (len(columns) - 1)]]).encode(),
    ),
    "jsonl": _Format(
        "application/jsonl",
        lambda _: b"",
        _write_json_lines,
        lambda _, text: encode_json({"incomplete": text}) + b"\n",
    ),
}
