"""Structured logging: JSON lines on standard error, with secrets redacted."""

import codecs
import io
import json
import logging
import sys
import traceback
from collections.abc import MutableMapping
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

_SECRET_WORDS = ("secret", "authorization", "api_key", "password", "credential", "email")
_FRAMES_MAX = 12
_LEVELS = logging.getLevelNamesMapping()
_levels: list[str] = []  # set by `configure_logging`; the last level applies

#: The ID of this task's request; added to every log line.
request_id: ContextVar[str] = ContextVar("request_id", default="")
#: The ID of this task's trace; set by `payintent.runtime.tracing` if tracing is enabled.
trace_id: ContextVar[str] = ContextVar("trace_id", default="")


class _Logger:
    """A logger that imports structlog when it is first used, because most commands do not log."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._logger: FilteringBoundLogger | None = None

    def __getattr__(self, method: str) -> Any:
        load_logging()
        if self._logger is None:
            import structlog

            self._logger = structlog.get_logger(part=self._name)
        return getattr(self._logger, method)


def configure_logging(level: str = "INFO") -> None:
    _levels.append(level)
    load_logging.cache_clear()


@cache
def load_logging() -> None:
    """Import and configure structlog. Servers call this before they accept requests."""
    import structlog

    if not _levels:
        return
    structlog.configure(
        processors=[
            _add_ids,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _redact,
            _format_error,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[_levels[-1].upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def get_logger(name: str) -> "FilteringBoundLogger":
    return cast("FilteringBoundLogger", _Logger(name))


def _add_ids(_: Any, __: str, entry: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for variable in (request_id, trace_id):
        if value := variable.get():
            entry[variable.name] = value
    return entry


def get_error_location(error: BaseException) -> list[str]:
    """Return an error's stack without its message, because the message may quote a database row."""
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES_MAX:]
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]


def _format_error(_: Any, __: str, entry: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    error = entry.pop("exc_info", None)
    if isinstance(error, BaseException):
        entry["error"] = type(error).__name__
        entry["where"] = get_error_location(error)
    return entry


def _redact(_: Any, __: str, entry: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for key in entry:
        if any(word in key for word in _SECRET_WORDS):
            entry[key] = "[redacted]"
    return entry


_ESCAPE = "payintent.escape"


def configure_standard_streams() -> None:
    r"""Escape characters that standard output or error cannot encode, such as `\u2713`.

    JSON escapes are used, so printed JSON remains equivalent. Undecodable bytes in standard input
    are replaced.
    """
    codecs.register_error(_ESCAPE, _escape_unencodable)
    for stream, errors in (
        (sys.stdout, _ESCAPE),
        (sys.stderr, _ESCAPE),
        (sys.stdin, "replace"),
    ):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)


def _escape_unencodable(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end
