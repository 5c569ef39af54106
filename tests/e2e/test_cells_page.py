"""The page of cells is played on an installation with one: its commands, as they stand there."""

import json
import re
import shlex
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import pytest

from payintent.config import Settings
from payintent.domain import ids
from payintent.operations.accounts import AddAccount
from payintent.operations.merchants import CreatedMerchant, CreateMerchant
from payintent.service import open_service
from tests.docs.reading import page, section
from tests.e2e.drill import variables_of
from tests.e2e.test_outage import is_well, process
from tests.support import processes
from tests.support.patience import until
from tests.support.roles import OWNER, database_with_roles, empty_database_with_roles
from tests.support.world import ACTOR, free_port

pytestmark = pytest.mark.e2e

_API = "payintent_api"
_PAGE = page("docs/scale.md")
_ORDER = {"currency": "USD", "amount": "49.90", "payer_uid": "buyer-1", "expires_in": 3600}
_START_S = 60.0


def _commands(heading: str) -> list[list[str]]:
    """Give the commands below a heading of the page, in their order, with all that they say."""
    shown = re.findall(r"(?:^ *|`)payintent ([^`\n]+)", section(_PAGE, heading), re.MULTILINE)
    return [shlex.split(words) for words in shown]


@dataclass
class Scene:
    """An installation with one cell whose API runs, and an empty database with the same roles."""

    control: dict[str, str]
    cell: dict[str, str]
    settings: Settings
    folder: Path
    http: aiohttp.ClientSession
    merchants: list[CreatedMerchant] = field(default_factory=list[CreatedMerchant])

    def environment(self, role: str) -> dict[str, str]:
        """Give what each process has once `PAYINTENT_CELLS` leads to the new cell."""
        settings = self.settings.model_copy(update={"database_url": self.control[role]})
        cells = json.dumps({"1": {"url": self.cell[role]}})
        return variables_of(settings) | {"PAYINTENT_CELLS": cells}

    def run(self, words: list[str], role: str = _API) -> str:
        """Run a command of the page; gives what it prints, or why it refuses."""
        done = processes.run("payintent", *words, env=self.environment(role))
        return done.stdout if done.returncode == 0 else done.stderr

    def api(self, **changes: str) -> AbstractContextManager[None]:
        port = str(self.settings.api_base.split(":")[2].partition("/")[0])
        words = ["payintent", "api", "--processes", "1", "--port", port]
        return process(self.folder, "api", words, self.environment(_API) | changes)

    async def until_well(self) -> None:
        url = self.settings.api_base.replace("/v1", "/readyz")
        await until(lambda: is_well(self.http, url), f"{url} answers", _START_S)

    async def create(self, key: str) -> tuple[str, int]:
        """Create a payment of the first merchant; gives its id, and the cell that this names."""
        found = await self._ask("POST", "/payments", key, _ORDER)
        payment_id = ids.parse_id(ids.PAYMENT, found["id"])
        assert payment_id is not None
        return found["id"], ids.cell_of_timed(payment_id)

    async def cancel(self, payment_id: str) -> None:
        await self._ask("POST", f"/payments/{payment_id}/cancel", str(uuid4()), {})

    async def list(self) -> set[str]:
        found = await self._ask("GET", "/payments", str(uuid4()))
        assert "incomplete" not in found
        return {payment["id"] for payment in found["data"]}

    async def _ask(self, method: str, path: str, key: str, body: Any = None) -> Any:
        headers = {"Authorization": f"Bearer {self.merchants[0].api_key}", "Idempotency-Key": key}
        url = self.settings.api_base + path
        async with self.http.request(method, url, json=body, headers=headers) as answer:
            found = await answer.json()
            assert answer.status < 300, found
            return found


@pytest.fixture
async def scene(tmp_path: Path, server_url: str, settings: Settings) -> AsyncIterator[Scene]:
    async with AsyncExitStack() as stack:
        control = await stack.enter_async_context(database_with_roles(server_url))
        cell = await stack.enter_async_context(empty_database_with_roles(server_url))
        base = {"api_base": f"http://127.0.0.1:{free_port()}/v1", "database_url": control[_API]}
        http = await stack.enter_async_context(aiohttp.ClientSession())
        scene = Scene(control, cell, settings.model_copy(update=base), tmp_path, http)
        service = await open_service(scene.settings)
        credentials = {"api_key": "sim-key", "signing_secret": "sim-secret"}
        account = AddAccount(
            provider="simulator", base_url="http://127.0.0.1:1", credentials=credentials
        )
        await service.run_operation(account, ACTOR)
        for name in ("Paper Lantern", "Harbour Tea"):
            merchant = CreateMerchant(name=name, methods="all")
            scene.merchants.append(await service.run_operation(merchant, ACTOR))
        await service.close()
        yield scene


async def test_a_cell_is_added_takes_a_merchant_is_drained_and_closed_by_the_pages_commands(
    scene: Scene,
) -> None:
    migrate, add = _commands("## Add a cell")
    [move] = _commands("## Move a merchant")
    drain, undo, close = _commands("## Drain and close a cell")
    first, second = (merchant.merchant.id for merchant in scene.merchants)
    assert move[:4] == ["merchant", "move", str(first), "--to"]
    with scene.api(PAYINTENT_CELLS="{}"):
        await scene.until_well()
        key = str(uuid4())
        before = await scene.create(key)
        scene.run(migrate, OWNER)
        scene.run(add)
        assert _open(scene) == ["open", "open"]
        [refusal] = re.findall(r"^ *(cell 1 is not open .+)$", _PAGE, re.MULTILINE)
        said = re.escape(refusal).replace("4711", r"\d+").replace(r"host\-2", r"\S+")
        assert re.search(said, scene.run(move))
    with scene.api():
        await scene.until_well()
        scene.run(move)
        after = await scene.create(str(uuid4()))
        assert (before[1], after[1]) == (0, 1)
        assert await scene.create(key) == before, "a key of before the move counts"
        assert await scene.list() == {before[0], after[0]}

        scene.run(drain)
        assert _open(scene) == ["open", "draining"]
        assert "draining" in scene.run([*move[:2], str(second), *move[3:]])
        scene.run(undo)
        assert _open(scene) == ["open", "open"]
        assert "first run cell drain" in scene.run(close)
        scene.run(drain)
        assert "1 merchants are in cell 1" in scene.run(close)
        scene.run([*move[:4], "0", *move[5:]])
        assert "in cell 1 is unended: 1 payment" in scene.run(close)
        await scene.cancel(after[0])
        scene.run(close)
        assert _open(scene) == ["open", "closed"]
        assert await scene.list() == {before[0], after[0]}, "what is in a closed cell is read on"
        assert (await scene.create(str(uuid4())))[1] == 0
    assert "permission denied" not in (scene.folder / "api.log").read_text()


def _open(scene: Scene) -> list[str]:
    """Give the state of each cell."""
    return [cell["state"] for cell in json.loads(scene.run(["cell", "list", "--json"]))]
