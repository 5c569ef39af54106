"""Run the API in this process, or in several processes under a supervisor.

All modules are imported before the supervisor forks, so that its processes share the memory of
the modules.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from prometheus_client import generate_latest

from payintent.app import Application, StoppedEarlyError, build_app, build_operator_app
from payintent.cli.common import FATAL_ERRORS, fail
from payintent.cli.processes import Address, get_default_process_count, start_processes
from payintent.http.middleware import CommonHeaders, RequestTimes
from payintent.http.server import RETIRE_SIGNAL, DrainingServer, make_server, serve_until_stopped
from payintent.operations import load_operations
from payintent.runtime.log import get_logger, load_logging
from payintent.runtime.processes.member import Member
from payintent.runtime.settings import Settings

_log = get_logger("process")
_PUBLIC, _OPERATOR = "public", "operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiAddresses:
    public: Address
    operator: Address | None = None


def serve_api(settings: Settings, addresses: ApiAddresses, processes: int | None) -> None:
    """Serve HTTP until stopped. If `processes` is None, the default number is used."""
    load_logging()
    load_operations()
    if processes == 1:
        _serve_api(settings, addresses, None)
        return
    by_name = {_PUBLIC: addresses.public}
    if addresses.operator is not None:
        by_name[_OPERATOR] = addresses.operator
    count = processes or get_default_process_count(settings)
    member = start_processes(count, by_name, RETIRE_SIGNAL)
    try:
        _serve_api(settings.make_process_settings(count), addresses, member)
    finally:
        member.close()


def _serve_api(settings: Settings, addresses: ApiAddresses, member: Member | None) -> None:
    metrics = (
        generate_latest if member is None else partial(generate_latest, member.make_registry())
    )
    operator = build_operator_app(metrics)
    application = build_app(settings, operator=operator)
    servers = {_PUBLIC: make_server(application, settings, *addresses.public)}
    if addresses.operator is not None:
        app = CommonHeaders(operator, times=RequestTimes())
        servers[_OPERATOR] = make_server(app, settings, *addresses.operator, lifespan=False)
    if member is not None:
        _share(servers, member)
    _serve_until_stopped(list(servers.values()), application, settings.drain_s)


def _share(servers: Mapping[str, DrainingServer], member: Member) -> None:
    """Make the servers listen on the sockets that all processes share."""
    for name, server in servers.items():
        if name == _PUBLIC:
            server.use_shared_sockets(
                member.sockets[name], member.make_connection_share(), member.report_ready
            )
        else:
            server.use_shared_sockets(member.sockets[name])


def _serve_until_stopped(
    servers: list[DrainingServer], application: Application, drain_s: float
) -> None:
    try:
        serve_until_stopped(servers, application, drain_s)
    except SystemExit:
        failure = application.failure
        if isinstance(failure, StoppedEarlyError):
            return
        if not isinstance(failure, FATAL_ERRORS):
            if failure is not None:
                _log.error("start_failed", exc_info=failure)
            raise
    if application.failure is not None:
        fail(str(application.failure))
