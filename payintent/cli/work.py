"""Run the worker in this process, or in several processes under a supervisor.

All modules are imported before the supervisor forks, so that its processes share the memory of
the modules.
"""

import asyncio
import signal
import sys
from collections.abc import Callable

import uvloop
from prometheus_client import REGISTRY

from payintent.cli.common import FATAL_ERRORS, fail
from payintent.cli.processes import Address, get_default_process_count, start_processes
from payintent.runtime.log import get_logger, load_logging
from payintent.runtime.processes.handover import BindError, bind
from payintent.runtime.processes.member import reject_sighup
from payintent.runtime.processes.metrics import serve_metrics
from payintent.runtime.settings import Settings
from payintent.worker import run_worker

_METRICS = "metrics"
_log = get_logger("process")


def run_workers(settings: Settings, metrics: Address | None, processes: int | None) -> None:
    """Run the loops until stopped. If `processes` is None, the default number is used."""
    load_logging()
    if processes == 1:
        if metrics is not None:
            try:
                serve_metrics(bind(*metrics), REGISTRY)
            except BindError as error:
                fail(str(error))
        _run_worker(settings, None)
        return
    addresses = {} if metrics is None else {_METRICS: metrics}
    count = processes or get_default_process_count(settings)
    member = start_processes(count, addresses, signal.SIGTERM)
    try:
        if metrics is not None:
            serve_metrics(member.sockets[_METRICS], member.make_registry())
        _run_worker(settings.make_process_settings(count), member.report_ready)
    finally:
        member.close()


def _run_worker(settings: Settings, on_started: Callable[[], None] | None) -> None:
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            if on_started is None:
                reject_sighup(runner.get_loop())
            runner.run(run_worker(settings, on_started))
    except FATAL_ERRORS as error:
        fail(str(error))
    except Exception:  # noqa: BLE001 - a defect, logged as JSON
        _log.exception("worker_failed")
        sys.exit(1)
