"""The startup of `api`, `worker` and `migrate`: logs, waiting, and immediate failures."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import aiohttp
import pytest

from payintent.runtime.settings import Settings
from payintent.runtime.settings_checks import find_interpreter_warnings
from payintent.runtime.version import VERSION
from tests.http.fault_proxy import FaultProxy
from tests.support.ports import free_port
from tests.support.timeouts import PATIENCE_S, wait_until

pytestmark = pytest.mark.full

_SECRET = "VmVyeS1zZWNyZXQ"
_STOPPED = '"event": "process_stopped"'  # a process that stopped on request


class _Process:
    """A process of the service, and its lines on standard error."""

    def __init__(self, running: asyncio.subprocess.Process) -> None:
        self.running = running

    async def line(self) -> str:
        assert self.running.stderr
        async with asyncio.timeout(PATIENCE_S):
            return (await self.running.stderr.readline()).decode().strip()

    async def event(self, name: str) -> dict[str, Any]:
        """Skip log lines until this event, and return it."""
        while line := await self.line():
            entry = json.loads(line)
            if entry["event"] == name:
                return entry
        raise AssertionError(f"the process ended without {name}")

    async def end(self) -> tuple[int | None, list[str]]:
        """Wait until the process ends. Return its status and its remaining lines."""
        async with asyncio.timeout(PATIENCE_S):
            _, output = await self.running.communicate()
        lines = output.decode().splitlines()
        return self.running.returncode, [line for line in lines if _STOPPED not in line]


@asynccontextmanager
async def _start_process(settings: Settings, *words: str, **more: str) -> AsyncIterator[_Process]:
    environment = {
        "PATH": os.environ["PATH"],
        "DATABASE_URL": settings.database_url,
        "PAYINTENT_PEPPER": settings.pepper.get_secret_value(),
        "PAYINTENT_KEYRING": settings.keyring.get_secret_value(),
        "PYTHONWARNINGS": "error",
        **more,
    }
    running = await asyncio.create_subprocess_exec(
        *(str(Path(sys.executable).with_name("payintent")), *words),
        env=environment,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield _Process(running)
    finally:
        if running.returncode is None:
            running.kill()
            await running.communicate()


async def test_a_process_logs_its_version_and_setting_names_but_no_values(
    settings: Settings,
) -> None:
    unreachable_url = f"postgresql://nobody:{_SECRET}@127.0.0.1:{free_port()}/payintent"
    port = free_port()
    more = {
        "DATABASE_URL": unreachable_url,
        "PAYINTENT_EDGE_SECRET": _SECRET,
        "PAYINTENT_WEBHOK_POLL_S": "1",
    }
    async with _start_process(settings, "api", "--port", str(port), **more) as api:
        first, warnings = await api.line(), await api.event("settings_doubtful")
        for why in find_interpreter_warnings():
            assert (await api.event("interpreter_doubtful"))["why"] == [why]
        database_event = await api.event("database_away")
    started = json.loads(first)
    assert (started["event"], started["process"]) == ("starting", "api")
    assert (started["version"], started["port"]) == (VERSION, port)
    assert started["settings"] == [
        "DATABASE_URL",
        "PAYINTENT_EDGE_SECRET",
        "PAYINTENT_KEYRING",
        "PAYINTENT_PEPPER",
    ]
    suggestion = "PAYINTENT_WEBHOK_POLL_S is not a setting; did you mean PAYINTENT_WEBHOOK_POLL_S?"
    assert warnings["why"] == [suggestion]
    assert database_event["why"] == "the database cannot be reached: connection refused"
    assert _SECRET not in first + str(warnings) + str(database_event)


@pytest.mark.parametrize(
    ("process", "port", "lines"), [("api", "--port", 1), ("worker", "--metrics-port", 2)]
)
async def test_a_service_can_be_stopped_while_it_waits_for_its_database(
    settings: Settings, process: str, port: str, lines: int
) -> None:
    unreachable_url = f"postgresql://nobody@127.0.0.1:{free_port()}/payintent"
    words = [process, port, str(free_port())]
    words += ["--operator-port", str(free_port())] if process == "api" else []
    async with _start_process(settings, *words, DATABASE_URL=unreachable_url) as waiting:
        waited = [(await waiting.event("database_away"))["waited_s"] for _ in range(lines)]
        assert all(later - earlier >= 5 for earlier, later in pairwise(waited))
        waiting.running.terminate()
        assert await waiting.end() == (0, [])


@pytest.mark.parametrize(("process", "port"), [("api", "--port"), ("worker", "--metrics-port")])
async def test_a_reload_without_a_supervisor_fails_without_stopping_the_process(
    settings: Settings, process: str, port: str
) -> None:
    unreachable_url = f"postgresql://nobody@127.0.0.1:{free_port()}/payintent"
    words = [process, "--processes", "1", port, str(free_port())]
    async with _start_process(settings, *words, DATABASE_URL=unreachable_url) as running_process:
        await running_process.event("database_away")
        running_process.running.send_signal(signal.SIGHUP)
        refused = await running_process.event("roll_failed")
        assert "restart the process" in refused["why"]
        running_process.running.terminate()
        assert await running_process.end() == (0, [])


async def test_a_worker_serves_metrics_on_the_configured_address(
    settings: Settings,
) -> None:
    unreachable_url = f"postgresql://nobody@127.0.0.1:{free_port()}/payintent"
    options = ("--metrics-host", "127.0.0.2", "--metrics-port", str(port := free_port()))
    async with _start_process(settings, "worker", *options, DATABASE_URL=unreachable_url) as worker:
        await worker.event("database_away")
        async with aiohttp.ClientSession() as client:
            assert await _status(client, f"http://127.0.0.2:{port}/metrics") == 200
            assert await _status(client, f"http://127.0.0.1:{port}/metrics") != 200
        worker.running.terminate()
        assert await worker.end() == (0, [])


async def test_a_waiting_service_starts_when_its_database_returns(settings: Settings) -> None:
    proxy = FaultProxy(settings.database_url)
    await proxy.mend()
    url, port = proxy.url, free_port()
    await proxy.cut()
    try:
        async with _start_process(settings, "api", "--port", str(port), DATABASE_URL=url) as api:
            await api.event("database_away")
            await proxy.mend()
            async with aiohttp.ClientSession() as client:
                health = f"http://127.0.0.1:{port}/healthz"
                assert (
                    await wait_until(lambda: _status(client, health), "the service to respond")
                    == 200
                )
            api.running.terminate()
            status, _ = await api.end()
        assert status == 0
    finally:
        await proxy.cut()


async def _status(client: aiohttp.ClientSession, url: str) -> int:
    try:
        async with client.get(url) as answer:
            return answer.status
    except aiohttp.ClientError:
        return 0


@pytest.mark.parametrize("process", ["api", "worker", "migrate"])
async def test_a_rejected_password_stops_a_process_immediately_with_a_single_line(
    settings: Settings, process: str
) -> None:
    parts = urlsplit(settings.database_url)
    netloc = f"nobody_at_all:{_SECRET}@{parts.hostname}:{parts.port}"
    url = urlunsplit(parts._replace(netloc=netloc))
    ports = {"api": ["--port", str(free_port())]}
    async with _start_process(
        settings, process, *ports.get(process, []), DATABASE_URL=url
    ) as ended:
        status, lines = await ended.end()
    messages = [line for line in lines if not line.startswith("{")]
    assert status == 1
    refused = 'password authentication failed for user "nobody_at_all"'
    assert messages == [f"payintent: the database refuses the connection: {refused}"]
    assert not [line for line in lines if "database_away" in line]


async def test_a_command_waits_for_the_database_and_then_reports_the_error(
    settings: Settings,
) -> None:
    hosts = f"127.0.0.1:{free_port()}"
    unreachable_url = f"postgresql://nobody@{hosts}/payintent"
    async with _start_process(settings, "migrate", DATABASE_URL=unreachable_url) as ended:
        status, lines = await ended.end()
    assert (status, lines) == (
        1,
        [
            f"payintent: waiting for the database at {hosts} …",
            "payintent: the database cannot be reached: connection refused",
        ],
    )


async def test_every_invalid_setting_is_reported_on_its_own_line(settings: Settings) -> None:
    wrong = {"PAYINTENT_WEBHOOK_TIMEOUT_S": "-3", "PAYINTENT_LOG_LEVEL": "loud"}
    async with _start_process(settings, "worker", **wrong) as ended:
        status, lines = await ended.end()
    assert status == 1
    number, level = "a number above 0 and at most 300", "one of DEBUG, INFO, WARNING, ERROR"
    assert lines == [
        f"payintent: PAYINTENT_WEBHOOK_TIMEOUT_S is '-3' but must be {number}",
        f"payintent: PAYINTENT_LOG_LEVEL is 'LOUD' but must be {level}",
    ]
