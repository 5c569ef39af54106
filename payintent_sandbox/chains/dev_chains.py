"""The sandbox's development chains: their processes, deployments and files."""

import asyncio
import fcntl
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

import msgspec

from payintent_sandbox.chains.anvil import answers, supervised_command
from payintent_sandbox.chains.anvil_binary import AnvilError, find
from payintent_sandbox.chains.deploy import (
    PLANS,
    ChainBuyer,
    ChainPlan,
    Deployment,
    deploy,
    describe,
    fund,
    is_deployed,
)
from payintent_sandbox.chains.rpc import DevChainError, DevChainRpc, open_chain
from payintent_sandbox.private_files import write_private
from payintent_sandbox.processes import ChildProcess, ProcessSupervisor

SLUGS = tuple(PLANS)
AWAKE_TIMEOUT_S = 60.0

_LOOK_S = 0.02
_FETCHER = "payintent_sandbox.chains.anvil_binary"


class ChainsBusyError(Exception):
    """Another process is running this folder's chains. The message is a single line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DevChain:
    """A development chain that is ready: its URL, its deployment and its buyer."""

    slug: str
    url: str
    instance: str  # of the running anvil; it changes with every start
    deployment: Deployment
    buyer: ChainBuyer

    def description(self) -> dict[str, Any]:
        """Describe the chain for testers, as its entry in `dev.json`."""
        return describe(self.url, self.deployment, self.buyer)


class DevChains:
    """The three chains of a sandbox folder. Only one process can run them at a time."""

    def __init__(self, var_dir: Path, ports: Sequence[int], owner: str = "dev") -> None:
        self._folder = var_dir / "chains"
        self._owner = owner  # the command that runs them
        self._ports = dict(zip(SLUGS, ports, strict=True))
        self._lock: TextIO | None = None
        children = [
            ChildProcess(
                f"chain-{slug}",
                supervised_command(
                    network_id=PLANS[slug].network_id, port=port, folder=self._folder / slug
                ),
                {},
            )
            for slug, port in self._ports.items()
        ]
        self._children = ProcessSupervisor(children, var_dir / "logs")
        self._started = False
        self.running: tuple[str, ...] = ()  # the slugs of the chains that are ready

    async def start(self, stop: asyncio.Event) -> None:
        """Start and prepare the chains, unless `stop` is set in the meantime.

        Raises `AnvilError`, `DevChainError` or `ChainsBusyError`, after stopping all chains.
        """
        self._lock = lock_folder(self._folder, self._owner)
        try:
            await fetch_anvil(stop)
            self._started = True
            await self._children.start()
            await asyncio.gather(*(self._wait_awake(slug, stop) for slug in self._ports))
            if stop.is_set():
                return
            await asyncio.gather(*(self.make_ready(slug) for slug in self._ports))
        except BaseException:
            await self.stop()
            raise
        self.running = SLUGS

    async def supervise(self, stop: asyncio.Event) -> None:
        """Restart every chain that exits, until `stop` is set."""
        if self._started:
            await self._children.supervise(stop)

    async def stop(self) -> None:
        """Stop the running chains, which then write their state."""
        if self._started:
            await self._children.stop()
            self._started, self.running = False, ()
        if self._lock is not None:
            self._lock.close()  # releases the lock
            self._lock = None

    async def make_ready(self, slug: str, *, anew: bool = False) -> DevChain:
        """Deploy the contract and the tokens if they are missing. Raises `DevChainError`.

        `anew` deploys them even if they exist. The buyer never changes.
        """
        folder = self._folder / slug
        async with open_chain(self.url(slug)) as chain:
            stored = read_chain(folder)
            if anew or stored is None or not await is_deployed(chain, stored.deployment):
                stored = await _deploy(chain, PLANS[slug], stored and stored.buyer)
            stored = replace(stored, url=chain.url, instance=await instance(chain))
        write_private(folder / "chain.json", msgspec.json.encode(stored).decode())
        return stored

    def url(self, slug: str) -> str:
        """Return a chain's JSON-RPC URL."""
        return f"http://127.0.0.1:{self._ports[slug]}"

    async def _wait_awake(self, slug: str, stop: asyncio.Event) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(AWAKE_TIMEOUT_S):
                while not stop.is_set():
                    if await asyncio.to_thread(answers, self.url(slug), PLANS[slug].network_id):
                        return
                    await asyncio.sleep(_LOOK_S)
                return
        raise DevChainError(f"{slug} did not start; see the logs folder")


async def instance(chain: DevChainRpc) -> str:
    """Return the id of the running anvil. It changes with every start, but not with a reorg."""
    return (await chain.ask("anvil_metadata"))["instanceId"]


def read_chain(folder: Path) -> DevChain | None:
    """Read a chain's file from its folder, or return None if the chain was never ready."""
    try:
        return msgspec.json.decode((folder / "chain.json").read_bytes(), type=DevChain)
    except (OSError, msgspec.MsgspecError):
        return None


def describe_all(chains: Mapping[str, DevChain]) -> dict[str, Any]:
    """Describe chains for testers, as the `chains` field of `dev.json`."""
    return {slug: chain.description() for slug, chain in chains.items()}


@dataclass(frozen=True, slots=True)
class ChainsOwner:
    """The process that runs the chains of a folder, and its command."""

    pid: int
    owner: str


def lock_folder(folder: Path, owner: str) -> TextIO:
    """Lock a folder's chains until the returned file is closed. Raises `ChainsBusyError`."""
    folder.mkdir(parents=True, exist_ok=True)
    file = (folder / "lock").open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise ChainsBusyError(f"the chains in {folder} are in use") from None
    file.truncate(0)
    file.write(f"{os.getpid()} {owner}")
    file.flush()
    return file


def find_owner(folder: Path) -> ChainsOwner | None:
    """Return the process that is running a folder's chains, or None."""
    try:
        with (folder / "lock").open("r") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                pid, owner = file.read().split()
                return ChainsOwner(int(pid), owner)
    except (FileNotFoundError, ValueError):  # ValueError: the owner is writing the file
        pass
    return None


async def fetch_anvil(stop: asyncio.Event) -> None:
    """Fetch anvil if it is missing; return early if `stop` is set. Raises `AnvilError`."""
    if await asyncio.to_thread(find) is not None:
        return
    print("fetching anvil for the dev chains (only once)", flush=True)
    # In a separate process, which can be killed at any time, because npm may retry for minutes.
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", _FETCHER),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    output = asyncio.create_task(process.communicate())
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({output, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not output.done():
        os.killpg(process.pid, signal.SIGKILL)
    stdout, _ = await output
    if stop.is_set() or await asyncio.to_thread(find) is not None:
        return
    raise AnvilError((stdout.decode(errors="replace").strip().splitlines() or ["no anvil"])[-1])


async def _deploy(chain: DevChainRpc, plan: ChainPlan, buyer: ChainBuyer | None) -> DevChain:
    deployment = await deploy(chain, plan)
    buyer = buyer or ChainBuyer.make()
    await fund(chain, deployment, buyer.address)
    return DevChain(slug=plan.slug, url=chain.url, instance="", deployment=deployment, buyer=buyer)
