"""Merged metrics of several processes.

Each process publishes its metrics on the board every 5 s. They are compressed, because the
labels of a series are repeated for each bucket of a histogram. Counters and histograms are summed,
including those of ended processes, so sums never decrease. Gauges describe the whole
installation, so the maximum over all processes is used. Metrics of a single process (`process_…`)
are not merged, but are labelled with `process`.
"""

import socket
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast
from wsgiref.simple_server import WSGIRequestHandler

import msgspec
from prometheus_client import (
    REGISTRY,
    CollectorRegistry,
    make_wsgi_app,  # pyright: ignore[reportUnknownVariableType]
)
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from payintent.runtime.processes.board import SUPERVISOR, Board

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication


_PROCESS_PREFIX = "process_"
_SUMMED_KINDS = frozenset({"counter", "histogram", "summary"})
_CREATED_SUFFIX = "_created"  # the start time of a counter, which is meaningless for a sum
_BACKLOG = 16
_COMPRESSION_LEVEL = 1
_ZLIB = b"x"  # the first byte of compressed content

_Key = tuple[str, tuple[tuple[str, str], ...]]


class Family(msgspec.Struct, frozen=True):
    name: str
    kind: str
    help: str
    samples: list[tuple[str, dict[str, str], float]]


class _ProcessMetrics(msgspec.Struct, frozen=True):
    """A process's metrics; `serial` distinguishes it from earlier processes in its slot."""

    serial: int
    families: list[Family]


class _EndedProcesses(msgspec.Struct, frozen=True):
    """The sums of ended processes, and the serial of the last ended process in each slot."""

    families: list[Family]
    serials: dict[int, int]
    supervisor: list[Family]


_NO_ENDED_PROCESSES = _EndedProcesses([], {}, [])


def to_families(metrics: Iterable[Metric]) -> list[Family]:
    return [
        Family(
            metric.name,
            metric.type,
            metric.documentation,
            [
                (sample.name, dict(sample.labels), float(sample.value))
                for sample in metric.samples
                if not sample.name.endswith(_CREATED_SUFFIX)
            ],
        )
        for metric in metrics
    ]


def publish(board: Board, slot: int, serial: int) -> bool:
    """Write this process's metrics to the board. Returns False if they are too large."""
    return _write(board, slot, _ProcessMetrics(serial, to_families(REGISTRY.collect())))


def add_ended_process(board: Board, slot: int) -> None:
    """Add an ended process's counters to the sums, in a single write."""
    process_metrics, ended_processes = _read_process(board, slot), _read_ended(board)
    if process_metrics is None or ended_processes.serials.get(slot) == process_metrics.serial:
        return
    counters = [family for family in process_metrics.families if _is_summed(family)]
    sums = _merge([ended_processes.families, counters])
    serials = ended_processes.serials | {slot: process_metrics.serial}
    _write(board, SUPERVISOR, _EndedProcesses(sums, serials, ended_processes.supervisor))


def publish_supervisor(board: Board, metrics: Iterable[Metric]) -> None:
    update = msgspec.structs.replace(_read_ended(board), supervisor=to_families(metrics))
    _write(board, SUPERVISOR, update)


def make_merged_registry(board: Board, publish_own: Callable[[], None]) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(_MergedCollector(board, publish_own))
    return registry


def merge_metrics(board: Board) -> list[Family]:
    processes = [(slot, _read_process(board, slot)) for slot in range(1, board.slots)]
    ended_processes = _read_ended(
        board
    )  # read last, so that a process that has just ended is counted once
    process_families = [
        [_label_process(family, slot) for family in process_metrics.families]
        for slot, process_metrics in processes
        if process_metrics is not None
        and ended_processes.serials.get(slot) != process_metrics.serial
    ]
    return _merge([ended_processes.families, ended_processes.supervisor, *process_families])


class _MergedCollector(Collector):
    def __init__(self, board: Board, publish_own: Callable[[], None]) -> None:
        self._board = board
        self._publish_own = publish_own

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        self._publish_own()
        for family in merge_metrics(self._board):
            metric = Metric(family.name, family.help, family.kind)
            metric.samples = [Sample(*sample) for sample in family.samples]
            yield metric


def _write(board: Board, slot: int, content: msgspec.Struct) -> bool:
    return board.write(slot, zlib.compress(msgspec.msgpack.encode(content), _COMPRESSION_LEVEL))


def _read(board: Board, slot: int) -> bytes:
    content = board.read(slot)
    is_compressed = content.startswith(_ZLIB)  # not if it is from an earlier release
    return zlib.decompress(content) if is_compressed else content


def _read_process(board: Board, slot: int) -> _ProcessMetrics | None:
    content = _read(board, slot)
    return msgspec.msgpack.decode(content, type=_ProcessMetrics) if content else None


def _read_ended(board: Board) -> _EndedProcesses:
    content = _read(board, SUPERVISOR)
    return msgspec.msgpack.decode(content, type=_EndedProcesses) if content else _NO_ENDED_PROCESSES


def _is_summed(family: Family) -> bool:
    return family.kind in _SUMMED_KINDS and not family.name.startswith(_PROCESS_PREFIX)


def _label_process(family: Family, slot: int) -> Family:
    """Add the `process` label to the samples of a per-process metric."""
    if not family.name.startswith(_PROCESS_PREFIX):
        return family
    samples = [
        (name, labels | {"process": str(slot)}, value) for name, labels, value in family.samples
    ]
    return msgspec.structs.replace(family, samples=samples)


def _merge(family_lists: Iterable[Iterable[Family]]) -> list[Family]:
    families: dict[str, Family] = {}
    values: dict[str, dict[_Key, float]] = {}
    for family_list in family_lists:
        for family in family_list:
            families.setdefault(family.name, family)
            _add_samples(values.setdefault(family.name, {}), family)
    return [
        msgspec.structs.replace(
            family,
            samples=[
                (name, dict(labels), value) for (name, labels), value in values[family.name].items()
            ],
        )
        for family in families.values()
    ]


def _add_samples(values: dict[_Key, float], family: Family) -> None:
    for name, labels, value in family.samples:
        key = (name, tuple(sorted(labels.items())))
        if key not in values:
            values[key] = value
        elif family.kind in _SUMMED_KINDS:
            values[key] += value
        else:
            values[key] = max(values[key], value)


class _QuietHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        del format, args


class _SharedServer(ThreadingWSGIServer):
    """A metrics server on a socket that processes share."""

    def __init__(self, listener: socket.socket, registry: CollectorRegistry) -> None:
        address = listener.getsockname()
        super().__init__(address, _QuietHandler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.server_name, self.server_port = address[0], address[1]
        self.setup_environ()
        self.set_app(cast("WSGIApplication", make_wsgi_app(registry)))
        listener.listen(_BACKLOG)


def serve_metrics(listeners: Sequence[socket.socket], registry: CollectorRegistry) -> None:
    """Serve metrics from threads that end with the process."""
    for listener in listeners:
        server = _SharedServer(listener, registry)
        threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
