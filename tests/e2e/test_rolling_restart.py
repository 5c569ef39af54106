"""Test a rolling restart behind deploy/nginx.conf under load."""

from pathlib import Path

import pytest

from drills.client import Target
from drills.load import CREATE, Load, failures
from drills.processes import api_program
from drills.restart import drill
from payintent.core import ids
from payintent.runtime.settings import Settings
from tests.e2e.drill import variables_of
from tests.support.installed_methods import add_simulator_method
from tests.support.ports import free_port
from tests.support.proxy import NAME, run_proxy
from tests.support.timeouts import PATIENCE_S
from tests.support.world import World

pytestmark = pytest.mark.full

_PER_S = 30.0
_REQUESTS_MAX = 3_000  # enough if a restart takes a minute on a slow machine
_RESTARTS = 2


async def test_a_rolling_restart_loses_no_request(
    settings: Settings, world: World, tmp_path: Path
) -> None:
    # Other processes cannot use the fake gateway.
    await add_simulator_method(settings, world.merchant_id)
    environment = variables_of(settings) | {"PAYINTENT_DRAIN_S": "3"}
    ports = free_port(), free_port()
    programs = [
        api_program(number, port, environment, tmp_path) for number, port in enumerate(ports, 1)
    ]
    try:
        for program in programs:
            await program.start()
        async with run_proxy(*ports, folder=tmp_path) as (base, tls_context):
            target = Target("127.0.0.1", int(base.rpartition(":")[2]), tls_context, NAME)
            load = Load(target, world.api_key, _PER_S, _REQUESTS_MAX, PATIENCE_S)
            restarts, calls = await drill(load, programs, _RESTARTS)
    finally:
        for program in programs:
            await program.kill()
    assert [restart.process for restart in restarts] == [program.name for program in programs]
    assert failures(calls) == {}
    assert len(calls) > _RESTARTS * _PER_S
    created = {call.payment_id for call in calls if call.kind == CREATE}
    rows = await world.rows("SELECT id FROM payment")
    assert {ids.format_id(ids.PAYMENT, row["id"]) for row in rows} == created
    assert not any('"event": "bug"' in program.log.read_text() for program in programs)
