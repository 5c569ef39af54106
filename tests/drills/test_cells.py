"""A short run of the cells drill: keys reach their installation, and the others keep working."""

from dataclasses import replace
from pathlib import Path

import pytest

from drills.cells.__main__ import Drill
from drills.cells.faults import FAULTS
from drills.cells.scene import running
from drills.client import Client
from tests.support.timeouts import PATIENCE_S


@pytest.mark.full
async def test_killing_an_installation_does_not_affect_the_other(tmp_path: Path) -> None:
    faults = {fault.name: replace(fault, hold_s=3.0) for fault in FAULTS}
    async with running(tmp_path, ("a1", "b1")) as scene:
        drill = Drill(scene, per_s=10.0, around_s=3.0)
        for name in ("kill-database-a1", "kill-api-b1"):
            run = await drill.run(faults[name])
            assert run.errors, "the fault has no effect"
            assert run.is_clean, run
        stored = [await installation.stored() for installation in scene.installations]
        client = Client(scene.target, PATIENCE_S)
        for own, other in ((0, 1), (1, 0)):
            payments, _ = stored[own]
            path = f"/v1/payments/{payments[0].payment_id}"
            for number, status in ((own, 200), (other, 404)):
                key = scene.installations[number].api_key
                headers = {"Authorization": f"Bearer {key}"}
                assert (await client.call("GET", path, headers)).status == status
        await client.close()
