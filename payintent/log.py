"""JSON lines on standard error: an event name and fields; ids, never secrets."""

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
_chosen_level: list[str] = []  # by `configure_logging`; the last one counts

#: The id of the request that this task answers; the API sets it, every log line has it.
request_id: ContextVar[str] = ContextVar("request_id", default="")
#: The trace that this task is part of; `payintent.tracing` sets it where traces are on.
trace_id: ContextVar[str] = ContextVar("trace_id", default="")


class _Logger:
    """A module's logger, which imports structlog for its first line: most commands write none."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._opened: FilteringBoundLogger | None = None

    def __getattr__(self, method: str) -> Any:
        load_logging()
        if self._opened is None:
            import structlog

            self._opened = structlog.get_logger(part=self._name)
        return getattr(self._opened, method)


def configure_logging(level: str = "INFO") -> None:
    """Set up JSON logging for this process."""
    _chosen_level.append(level)
    load_logging.cache_clear()


@cache
def load_logging() -> None:
    """Import what writes lines; a process that serves does it before it accepts requests."""
    import structlog

    if not _chosen_level:
        return
    structlog.configure(
        processors=[
            _name_request,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _redact,
            _locate,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[_chosen_level[-1].upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def get_logger(name: str) -> "FilteringBoundLogger":
    """Return the logger of one module."""
    return cast("FilteringBoundLogger", _Logger(name))


def _name_request(_: Any, __: str, entry: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    if named := request_id.get():
        entry["request_id"] = named
    if traced := trace_id.get():
        entry["trace_id"] = traced
    return entry


def error_location(error: BaseException) -> list[str]:
    """Return where an error arose, without its message: a driver's may quote a whole row."""
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES_MAX:]
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]


def _locate(_: Any, __: str, entry: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    error = entry.pop("exc_info", None)
    if isinstance(error, BaseException):
        entry["error"] = type(error).__name__
        entry["where"] = error_location(error)
    return entry


def _redact(_: Any, __: str, entry: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for key in entry:
        if any(word in key for word in _SECRET_WORDS):
            entry[key] = "[redacted]"
    return entry
