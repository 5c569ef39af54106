"""`payintent dev`: the whole sandbox in one terminal, everything real, nothing to install."""

import asyncio
import json
import os
import signal
import socket
import sys
import urllib.request
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

from payintent.cli.run import SANDBOX_ENV
from payintent.sandbox.children import Child, Children
from payintent.sandbox.postgres import Postgres, PostgresError
from payintent.sandbox.world import Ports, World, prepare_world

_READY_TRIES_MAX = 300
_READY_WAIT_S = 0.1
_DATABASE_LOOK_S = 0.2


def run() -> int:
    """Run until Ctrl-C or SIGTERM; gives the exit status."""
    var_dir = Path(os.environ.get("VAR_DIR", "var")).resolve()
    ports = Ports.from_base(int(os.environ.get("PORT_BASE", "8080")))
    if taken := [port for port in ports.all if _is_taken(port)]:
        listed = ", ".join(str(port) for port in taken)
        print(f"payintent dev: port {listed} is taken; choose others with PORT_BASE=N")
        return 1
    var_dir.mkdir(parents=True, exist_ok=True)
    database = Postgres(var_dir / "postgres")
    try:
        database_url = database.start()
        return asyncio.run(_run(var_dir, ports, database, database_url))
    except PostgresError as error:
        print(f"payintent dev: {error}", file=sys.stderr)
        return 1
    finally:
        database.stop()


async def _run(var_dir: Path, ports: Ports, database: Postgres, database_url: str) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    world = await prepare_world(var_dir, ports, database_url)
    children = Children(_children(world), var_dir / "logs")
    await children.start()
    keeper = asyncio.create_task(_keep(database, urlsplit(database_url).port or 0))
    try:
        if not await _ready(world, stop):
            return 0 if stop.is_set() else 1
        _write_private(var_dir / "dev.json", json.dumps(world.description(), indent=1))
        _write_private(var_dir / SANDBOX_ENV, _lines(world.service_environment()))
        _greet(world, var_dir)
        await children.supervise(stop)
    finally:
        print("stopping")
        await children.stop()
        keeper.cancel()
    return 0


async def _keep(database: Postgres, port: int) -> None:
    """Start the database again, where its clients know it, should it die."""
    while True:
        await asyncio.sleep(_DATABASE_LOOK_S)
        if database.alive():
            continue
        print("the database ended; starting again", flush=True)
        try:
            await asyncio.to_thread(database.start, port)
        except PostgresError as error:
            print(f"payintent dev: {error}", file=sys.stderr)


def _children(world: World) -> list[Child]:
    python = [sys.executable, "-m"]
    ports = ["--port", str(world.ports.api), "--operator-port", str(world.ports.operator)]
    return [
        Child(
            "simulator",
            [*python, "payintent.sandbox.simulator", "--port", str(world.ports.simulator)],
            world.simulator_environment(),
        ),
        Child("api", [*python, "payintent", "api", *ports], world.service_environment()),
        Child("worker", [*python, "payintent", "worker"], world.service_environment()),
        Child(
            "shop",
            [*python, "payintent.sandbox.shop", "--port", str(world.ports.shop)],
            world.shop_environment(),
        ),
    ]


async def _ready(world: World, stop: asyncio.Event) -> bool:
    """Wait until a payment can be made."""
    for url in world.health_urls():
        for _ in range(_READY_TRIES_MAX):
            if stop.is_set():
                return False
            if await asyncio.to_thread(_answers, url):
                break
            await asyncio.sleep(_READY_WAIT_S)
        else:
            print(f"payintent dev: {url} does not answer; see the logs folder", file=sys.stderr)
            return False
    return True


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:  # noqa: S310 - our own address
            return answer.status == HTTPStatus.OK
    except OSError:  # URLError is one
        return False


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


def _write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    draft.replace(path)


def _lines(environment: dict[str, str]) -> str:
    return "".join(f"{name}='{value}'\n" for name, value in environment.items())


def _greet(world: World, var_dir: Path) -> None:
    print("dev chains are not part of this version; card payments work")
    print(f"  shop       {world.shop_url}")
    print(f"  api        {world.api_url}")
    print(f"  gateway    {world.simulator_url}   (delays {world.time_scale:g} times shorter)")
    print(f"  keys       {var_dir / 'dev.json'}")
    print(f"  logs       {var_dir / 'logs'}")
    print("ready", flush=True)
