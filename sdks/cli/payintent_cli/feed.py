"""Reads the event feed. Each event has exactly the same bytes as its webhook's body."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType

import httpx
from payintent_sdk import calls
from payintent_sdk.connections import Connections
from payintent_sdk.decoding import as_object
from payintent_sdk.errors import ApiError, NoAnswerError
from payintent_sdk.events import Event, EventDelivery, EventFeed
from payintent_sdk.retries import read_answer
from payintent_sdk.sending import build_request, create_no_answer_error, send

from payintent_cli.keys import Access

_PAGE = 20
_TIMEOUT_S = 10.0
_TRIES = 5  # attempts per page while seeking the end of the feed
_AGAIN_S = 2.0  # after a response without Retry-After
_AGAIN_MAX_S = 60.0
_BUSY, _BROKEN = 429, 500
_SPACE = re.compile(r"[ \t\r\n]*")
_value_at = json.JSONDecoder().raw_decode


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An event of the feed; `body` is its webhook's body, byte for byte."""

    id: str
    event: Event
    delivery: EventDelivery
    body: bytes

    @property
    def payment_id(self) -> str:
        """Return the id of the event's payment, or "-" if there is none."""
        data = as_object(as_object(json.loads(self.body)).get("data"))
        return str(as_object(data.get("payment")).get("id", "-"))


@dataclass(frozen=True, kw_only=True)
class Page:
    """Entries in feed order, and the cursor for the next page."""

    entries: list[Entry]
    after: str
    has_more: bool


class Feed:
    """Reads a merchant's feed. Use it with `with`."""

    def __init__(self, access: Access) -> None:
        self._connections = Connections(access.key, access.base_url, "payintent-cli/0.1")

    def read(
        self,
        after: str | None,
        *,
        wait: int = 0,
        limit: int = _PAGE,
        types: list[str] | None = None,
    ) -> Page:
        """Return the entries after `after`. Wait up to `wait` seconds for the first.

        Raises `ApiError` and `NoAnswerError`.
        """
        call = calls.list_events(after=after, types=types, limit=limit, wait=wait)
        http = self._connections.current()
        request = build_request(http, call, _TIMEOUT_S)
        try:
            answer = send(http, request, _TIMEOUT_S + call.wait_s)
        except httpx.RequestError as error:
            raise create_no_answer_error("no answer", error)  # noqa: B904 - its cause is set if it is safe
        feed: EventFeed = read_answer(call, answer.status_code, answer.headers, answer.content)
        bodies = list(events_of(answer.content.decode()))
        entries = [
            Entry(id=one.id, event=one.event, delivery=one.delivery, body=body)
            for one, body in zip(feed.data, bodies, strict=True)
        ]
        return Page(entries=entries, after=feed.after, has_more=feed.has_more)

    def newest(self) -> str:
        """Return the cursor after the newest event; retry after transient errors.

        Raises the errors of `read` after a few attempts for the same page.
        """
        page = self._read_patiently(None)
        while page.has_more:
            page = self._read_patiently(page.after)
        return page.after

    def _read_patiently(self, after: str | None) -> Page:
        for _ in range(_TRIES - 1):
            try:
                return self.read(after, limit=100)
            except (ApiError, NoAnswerError) as error:  # noqa: PERF203 - few attempts
                pause = pause_s(error)
                if pause is None:
                    raise
                time.sleep(pause)
        return self.read(after, limit=100)

    def __enter__(self) -> Feed:  # noqa: PYI034 - Python 3.10 has no Self
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._connections.close()


def pause_s(error: ApiError | NoAnswerError) -> float | None:
    """Return the delay before a retry, or None if a retry would not help."""
    if isinstance(error, NoAnswerError):
        return _AGAIN_S
    if error.status != _BUSY and error.status < _BROKEN:
        return None
    return min(error.retry_after_s or _AGAIN_S, _AGAIN_MAX_S)


def events_of(answer: str) -> Iterator[bytes]:
    """Yield each event of a feed response, byte for byte."""
    for name, start, _ in _members(answer, _skip(answer, 0)):
        if name == "data":
            for item in _items(answer, start):
                for field, begin, end in _members(answer, item):
                    if field == "event":
                        yield answer[begin:end].encode()


def _members(text: str, at: int) -> Iterator[tuple[str, int, int]]:
    """Return the name, the start and the end of each member of the object at `at`."""
    at = _skip(text, at + 1)
    while text[at] != "}":
        name, at = _value_at(text, at)
        start = _skip(text, _skip(text, at) + 1)  # after the colon
        _, end = _value_at(text, start)
        yield name, start, end
        at = _behind_comma(text, end)


def _items(text: str, at: int) -> Iterator[int]:
    """Yield the start position of each item of the array at `at`."""
    at = _skip(text, at + 1)
    while text[at] != "]":
        yield at
        at = _behind_comma(text, _value_at(text, at)[1])


def _behind_comma(text: str, at: int) -> int:
    at = _skip(text, at)
    return _skip(text, at + 1) if text[at] == "," else at


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at
