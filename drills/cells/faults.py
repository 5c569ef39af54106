"""Faults in an installation under load, and their repairs."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus

from drills.cells.scene import Scene
from drills.client import Client

Step = Callable[[Scene], Awaitable[None]]
_HOLD_S = 15.0
_ANSWERED_S = 10.0


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault in one installation, which is repaired after `hold_s`."""

    name: str
    title: str
    installation: int  # index of the affected installation
    begin: Step
    end: Step
    hold_s: float = _HOLD_S
    is_harmless: bool = False  # no merchant's request may fail


def _kill_database(number: int) -> Step:
    return lambda scene: scene.installations[number].database.kill()


def _start_database(number: int) -> Step:
    return lambda scene: scene.installations[number].database.start()


def _freeze_database(number: int) -> Step:
    return lambda scene: scene.installations[number].database.freeze()


def _wake_database(number: int) -> Step:
    return lambda scene: scene.installations[number].database.wake()


def _signal_api(number: int, signal_number: int) -> Step:
    async def send(scene: Scene) -> None:
        scene.installations[number].signal_api(signal_number)
        await asyncio.sleep(0)

    return send


def _start_api(number: int) -> Step:
    async def start(scene: Scene) -> None:
        api = scene.installations[number].api
        await api.stop()
        await api.start()

    return start


async def _join(scene: Scene) -> None:
    """Also route to the third installation, and send a request to it."""
    await scene.route(3)
    client = Client(scene.target, _ANSWERED_S)
    headers = {"Authorization": f"Bearer {scene.installations[2].api_key}"}
    reply = await client.call("GET", "/v1/payments", headers)
    await client.close()
    assert reply.status == HTTPStatus.OK, reply  # noqa: S101 - the drill has failed


async def _leave(scene: Scene) -> None:
    """Route only to the first two installations."""
    await scene.route(2)


def _faults(number: int, mark: str) -> list[Fault]:
    kill, stop, go_on = signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT
    return [
        Fault(
            *(f"kill-database-{mark}", f"{mark}'s database killed", number),
            *(_kill_database(number), _start_database(number)),
        ),
        Fault(
            *(f"freeze-database-{mark}", f"{mark}'s database frozen", number),
            *(_freeze_database(number), _wake_database(number)),
        ),
        Fault(
            *(f"kill-api-{mark}", f"{mark}'s API killed", number),
            *(_signal_api(number, kill), _start_api(number)),
        ),
        Fault(
            *(f"freeze-api-{mark}", f"{mark}'s API frozen", number),
            *(_signal_api(number, stop), _signal_api(number, go_on)),
        ),
    ]


FAULTS = (
    *_faults(0, "a1"),
    *_faults(1, "b1"),
    Fault(
        *("join", "c1 added, then removed", 0),
        *(_join, _leave),
        is_harmless=True,
    ),
)
