"""`payintent dev`: the complete sandbox in a terminal, without further installation."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import urllib.request
from collections.abc import AsyncGenerator
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

from payintent.cli.common import SANDBOX_ENV
from payintent.service import Service
from payintent_sandbox.chains.anvil_binary import AnvilError
from payintent_sandbox.chains.dev_chains import ChainsBusyError, DevChain, DevChains
from payintent_sandbox.chains.miner import Miner
from payintent_sandbox.chains.registration import ChainRegistration
from payintent_sandbox.chains.rpc import DevChainError, open_chain
from payintent_sandbox.emulators.runner import read_time_scale
from payintent_sandbox.installation import (
    ACTOR,
    SandboxInstallation,
    open_installed_service,
    prepare_installation,
)
from payintent_sandbox.packages import find_packages
from payintent_sandbox.ports import Ports, taken
from payintent_sandbox.postgres import Postgres, PostgresError
from payintent_sandbox.private_files import write_private
from payintent_sandbox.processes import ChildProcess, ProcessSupervisor

_READY_ATTEMPTS_MAX = 300
_READY_WAIT_S = 0.1
_DATABASE_POLL_S = 0.2


def run(*, chains: bool = True) -> int:
    """Run until Ctrl-C or SIGTERM, with or without development chains; return the exit status."""
    var_dir = Path(os.environ.get("VAR_DIR", "var")).resolve()
    try:
        ports = Ports.from_environment()
        read_time_scale()
    except ValueError as error:
        print(f"payintent dev: {error}", file=sys.stderr)
        return 1
    if listed := ", ".join(str(port) for port in taken(ports.all)):
        print(f"payintent dev: ports in use: {listed}; choose other ports with PORT_BASE=N")
        return 1
    var_dir.mkdir(parents=True, exist_ok=True)
    database = Postgres(var_dir / "postgres")
    try:
        database_url = database.start()
        return asyncio.run(_run(var_dir, ports, database, database_url, chains=chains))
    except (PostgresError, DevChainError) as error:
        print(f"payintent dev: {error}", file=sys.stderr)
        return 1
    finally:
        database.stop()


async def _run(
    var_dir: Path, ports: Ports, database: Postgres, database_url: str, *, chains: bool
) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    dev_chains = DevChains(var_dir, ports.chains)
    supervisor = asyncio.create_task(_keep_alive(database, urlsplit(database_url).port or 0))
    try:
        if chains:
            await _start(dev_chains, stop)
        if stop.is_set():
            return 0
        packages = asyncio.create_task(asyncio.to_thread(find_packages))
        installation = await prepare_installation(var_dir, ports, database_url, dev_chains)
        installation = replace(installation, packages_dir=await packages)
        return await _serve(installation, var_dir, dev_chains, stop)
    finally:
        await dev_chains.stop()
        supervisor.cancel()


async def _start(dev_chains: DevChains, stop: asyncio.Event) -> None:
    """Start the chains; if that fails, print why and run without them."""
    try:
        await dev_chains.start(stop)
    except (AnvilError, DevChainError, ChainsBusyError) as error:
        print(f"no dev chains, so token payments are unavailable: {error}", flush=True)


async def _serve(
    installation: SandboxInstallation, var_dir: Path, dev_chains: DevChains, stop: asyncio.Event
) -> int:
    children = ProcessSupervisor(_children(installation), var_dir / "logs")
    await children.start()
    try:
        if not await _ready(installation, stop):
            return 0 if stop.is_set() else 1
        _describe(installation, var_dir)
        _greet(installation, var_dir)
        async with _mining(installation, var_dir, dev_chains):
            await asyncio.gather(children.supervise(stop), dev_chains.supervise(stop))
    finally:
        print("stopping")
        await children.stop()
    return 0


@contextlib.asynccontextmanager
async def _mining(
    installation: SandboxInstallation, var_dir: Path, dev_chains: DevChains
) -> AsyncGenerator[None]:
    """Mine blocks while they are needed, and restore chains that were restarted."""
    service = await open_installed_service(installation)
    miners = [
        asyncio.create_task(_mine(chain, service, installation, var_dir, dev_chains))
        for chain in installation.chains.values()
    ]
    try:
        yield
    finally:
        for miner in miners:
            miner.cancel()
        await asyncio.gather(*miners, return_exceptions=True)
        await service.close()


async def _mine(
    chain: DevChain,
    service: Service,
    installation: SandboxInstallation,
    var_dir: Path,
    dev_chains: DevChains,
) -> None:
    async def restore() -> str:
        restored = await installation.register_chain(service, dev_chains, chain.slug)
        _describe(installation, var_dir)
        return restored.instance

    registration = ChainRegistration(service, ACTOR)
    async with open_chain(chain.url) as rpc:
        await Miner(rpc, chain.instance, lambda: registration.busy(chain.slug), restore).run()


async def _keep_alive(database: Postgres, port: int) -> None:
    """Restart the database on the same port whenever it exits."""
    while True:
        await asyncio.sleep(_DATABASE_POLL_S)
        if database.alive():
            continue
        print("the database exited; restarting it", flush=True)
        try:
            await asyncio.to_thread(database.start, port)
        except PostgresError as error:
            print(f"payintent dev: {error}", file=sys.stderr)


def _children(installation: SandboxInstallation) -> list[ChildProcess]:
    python = [sys.executable, "-m"]
    ports = [
        "--port",
        str(installation.ports.api),
        "--operator-port",
        str(installation.ports.operator),
    ]
    metrics = ["--metrics-port", str(installation.ports.metrics)]
    return [
        ChildProcess(
            "simulator",
            [
                *python,
                "payintent_sandbox.emulators.simulator",
                "--port",
                str(installation.ports.simulator),
            ],
            installation.simulator_environment(),
        ),
        *installation.gateway_children(),
        ChildProcess(
            "api",
            [*python, "payintent", "api", "--processes", "1", *ports],
            installation.service_environment(),
        ),
        ChildProcess(
            "worker",
            [*python, "payintent", "worker", "--processes", "1", *metrics],
            installation.service_environment(),
        ),
        ChildProcess(
            "shop",
            [*python, "payintent_sandbox.shop", "--port", str(installation.ports.shop)],
            installation.shop_environment(),
        ),
    ]


async def _ready(installation: SandboxInstallation, stop: asyncio.Event) -> bool:
    """Wait until a payment can be made."""
    for url, expected in installation.ready_urls():
        for _ in range(_READY_ATTEMPTS_MAX):
            if stop.is_set():
                return False
            if await asyncio.to_thread(_answers, url, expected):
                break
            await asyncio.sleep(_READY_WAIT_S)
        else:
            print(f"payintent dev: {url} is not ready; see the logs folder", file=sys.stderr)
            return False
    return True


def _answers(url: str, expected: bytes) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:  # noqa: S310 - an address of the sandbox
            return answer.status == HTTPStatus.OK and expected in answer.read()
    except OSError:  # includes URLError
        return False


def _describe(installation: SandboxInstallation, var_dir: Path) -> None:
    write_private(var_dir / "dev.json", json.dumps(installation.description(), indent=1))
    write_private(var_dir / SANDBOX_ENV, _lines(installation.service_environment()))


def _lines(environment: dict[str, str]) -> str:
    return "".join(f"{name}='{value}'\n" for name, value in environment.items())


def _greet(installation: SandboxInstallation, var_dir: Path) -> None:
    print(f"  shop       {installation.shop_url}")
    print(f"  api        {installation.api_url}")
    print(f"  console    {installation.operator_url}   (operator tokens are in dev.json)")
    scale = f"delays are divided by {installation.time_scale:g}"
    print(f"  simulator  {installation.simulator_url}   ({scale})")
    for gateway in installation.gateways:
        print(f"  {gateway.provider:10} {gateway.url}   (an emulator: no money moves there)")
    for slug, chain in installation.chains.items():
        print(f"  {slug:10} {chain.url}   (a buyer with tokens is in dev.json)")
    print(f"  portal     {installation.portal_base}   (sign in with these single-use links:)")
    for link in installation.portal_links.values():
        print(f"             {link}")
    print(f"  keys       {var_dir / 'dev.json'}")
    print(f"  logs       {var_dir / 'logs'}")
    print("ready", flush=True)
