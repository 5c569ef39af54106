"""`/readyz` caches its result, and does not return 500 when the service starts."""

import asyncio
import socket
from pathlib import Path

import pytest

from drills.processes import Program, payintent
from payintent.app import build_operator_app
from payintent.http.middleware import CommonHeaders
from payintent.http.server import make_server
from payintent.runtime.settings import Settings
from tests.e2e.drill import variables_of
from tests.support.arrange import refusal
from tests.support.event_loop_server import listening
from tests.support.ports import free_port
from tests.support.timeouts import PATIENCE_S
from tests.support.world import Api, World

_UNAVAILABLE = (503, "SERVICE_UNAVAILABLE")


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"readiness_cache_s": 3600.0})


async def test_the_readiness_result_is_cached(api: Api) -> None:
    requests = [api.send("GET", "/readyz") for _ in range(50)]
    assert {answer.status for answer in await asyncio.gather(*requests)} == {200}
    await api.world.rows("DELETE FROM schema_migration")
    assert (await api.send("GET", "/readyz")).status == 200  # cached for an hour


async def test_a_process_that_waits_for_its_database_is_not_ready_and_stops_on_sigterm(
    settings: Settings, world: World, tmp_path: Path
) -> None:
    public, operators = free_port(), free_port()
    with socket.create_server(("127.0.0.1", 0)) as listener:  # accepts, but does not respond
        url = f"postgresql://payintent@127.0.0.1:{listener.getsockname()[1]}/x?sslmode=disable"
        program = Program(
            "api",
            payintent(
                "api", "--processes", "1", "--port", str(public), "--operator-port", str(operators)
            ),
            variables_of(settings.model_copy(update={"database_url": url})),
            tmp_path,
            f"http://127.0.0.1:{operators}/healthz",
        )
        await program.start()
        async with Api(f"http://127.0.0.1:{operators}", world) as api:
            assert refusal(await api.send("GET", "/readyz")) == _UNAVAILABLE
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", public)
        process = program.process
        assert process is not None
        process.terminate()
        assert await asyncio.to_thread(process.wait, PATIENCE_S) == 0
    assert "Traceback" not in program.log.read_text()
    assert '"event": "bug"' not in program.log.read_text()


async def test_the_operator_port_reports_not_ready_while_the_service_starts(
    settings: Settings, world: World
) -> None:
    port = free_port()
    server = make_server(
        CommonHeaders(build_operator_app()), settings, "127.0.0.1", port, lifespan=False
    )
    async with listening(server), Api(f"http://127.0.0.1:{port}", world) as api:
        for path in ("/readyz", "/operator/tax/list", "/operator/webhooks"):
            assert refusal(await api.send("GET", path)) == _UNAVAILABLE
        assert (await api.send("GET", "/healthz")).status == 200
        assert (await api.send("GET", "/metrics")).status == 200
