"""Record the start of each answer, so that its status counts even if the rest is invalid.

The HTTP client fails without the status if a body cannot be read or must not follow the status.
"""

import asyncio
import re
from contextvars import ContextVar
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler

_BYTES_MAX = 32 * 1024  # interim answers such as 103 may come first
_FINAL = 200
_HEAD_END = b"\r\n\r\n"
_STATUS_LINE = re.compile(rb"HTTP/1\.[0-9] ([0-9]{3})(?:[ \t][^\r\n]*)?\r?\n")


class AnswerStart:
    """The start of the answer to this task's request; empty until an answer arrives."""

    def __init__(self) -> None:
        self.received = bytearray()
        _awaited.set(self)

    def status(self) -> int | None:
        """Return the status of the final answer; None without a complete status line."""
        at = 0
        while match := _STATUS_LINE.match(self.received, at):
            status = int(match[1])
            if status >= _FINAL:
                return status
            head_end = self.received.find(_HEAD_END, match.end() - 2)
            if head_end < 0:
                return None
            at = head_end + len(_HEAD_END)
        return None


class RecordingConnector(aiohttp.TCPConnector):
    """A connector with connections that record the start of each answer."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)  # pyright: ignore[reportUnknownMemberType]
        self._factory = lambda: _Connection(self._loop)


_awaited: ContextVar[AnswerStart | None] = ContextVar("awaited_answer", default=None)


class _Connection(ResponseHandler):
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._start: AnswerStart | None = None

    def set_response_params(self, **params: Any) -> None:
        """Prepare for an answer; called in the task that sends the request."""
        self._start = _awaited.get()
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        if self._start is not None:
            received = self._start.received
            received += data[: _BYTES_MAX - len(received)]
        super().data_received(data)
