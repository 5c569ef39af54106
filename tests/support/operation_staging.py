"""The stage for operations, arranged once per test file. Its tests use copies of the database."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from payintent.runtime.settings import Settings
from payintent.service import Service, open_service
from tests.support.databases import WORLD_TEMPLATE, Databases, name_of
from tests.support.fakes import FakeGateway
from tests.support.operation_examples import Stage, make_stage, open_outside_sandbox
from tests.support.world import World


@dataclass(frozen=True)
class StageTemplate:
    """A database with the stage, and the stage's values."""

    name: str
    known: dict[str, Any]
    tokens: dict[str, str]


async def stage_of(template: StageTemplate | None, world: World, service: Service) -> Stage:
    """Return the stage in a test's database. Without a template, the stage is arranged now."""
    if template is None:
        return await make_stage(world, service)
    return Stage(world, service, dict(template.known), dict(template.tokens))


@contextmanager
def open_stage_template(
    databases: Databases, settings: Settings, ids: dict[str, Any]
) -> Iterator[StageTemplate]:
    """Arrange the stage in a template database that can be copied while the block runs."""
    url = databases.take(WORLD_TEMPLATE)
    values, tokens = asyncio.run(_arrange(settings.model_copy(update={"database_url": url}), ids))
    yield StageTemplate(name_of(url), values, tokens)
    databases.forget(name_of(url))
    databases.give_back(url)


async def _arrange(
    settings: Settings, ids: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, str]]:
    gateway = FakeGateway()
    service = await open_service(settings, {"fake": gateway})
    world = World(service=service, gateway=gateway, **ids)
    async with open_outside_sandbox(world) as production:
        stage = await make_stage(world, production)
    await service.close()
    return stage.known, stage.tokens
