"""The commands of `payintent devchain`."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NoReturn, TypeVar

import msgspec
import typer

from payintent.evm.abi import parse_address
from payintent_sandbox.chains.anvil_binary import AnvilError
from payintent_sandbox.chains.deploy import fund
from payintent_sandbox.chains.dev_chains import (
    SLUGS,
    ChainsBusyError,
    DevChain,
    DevChains,
    describe_all,
    find_owner,
    read_chain,
)
from payintent_sandbox.chains.miner import Miner
from payintent_sandbox.chains.rpc import (
    DevChainError,
    DevChainRpc,
    UnreachableDevChainError,
    open_chain,
)
from payintent_sandbox.ports import Ports, taken
from payintent_sandbox.private_files import write_private

T = TypeVar("T")
READY_TIMEOUT_S = 600.0  # the first start fetches anvil
STOP_TIMEOUT_S = 60.0
_LOOK_S = 0.05
_READY = "devchain.json"  # written by `up`; the counterpart of the sandbox's `dev.json`
_OWNER = "devchain"
_HINT = "run `make dev` or `payintent devchain up`"


def start(*, foreground: bool) -> None:
    """Run the chains in this terminal, or start them in the background and wait for them."""
    var_dir, ports = _var_dir(), _ports()
    if find_owner(var_dir / "chains"):
        _fail("the chains are already running: `payintent devchain up` or `make dev` started them")
    if listed := ", ".join(str(port) for port in taken(ports.chains)):
        _fail(f"ports in use: {listed}; choose other ports with PORT_BASE=N")
    if foreground:
        raise typer.Exit(asyncio.run(_run(var_dir, ports)))
    _spawn(var_dir)
    for slug in SLUGS:
        chain = _chain(slug)
        print(f"{slug:10} {chain.url}  contract {chain.deployment.contract_address}")
    print(f"the tokens, and each chain's buyer with its key, are in {var_dir / _READY}")


def stop() -> None:
    """Stop the process that runs the chains, and wait until it has exited."""
    var_dir = _var_dir()
    running = find_owner(var_dir / "chains")
    if running is None:
        print("no chains are running")
        return
    if running.owner != _OWNER:
        _fail("these chains belong to `make dev` and stop with it")
    os.kill(running.pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while find_owner(var_dir / "chains") == running:
        if time.monotonic() > deadline:
            _fail(f"the chains have not stopped; their supervisor is process {running.pid}")
        time.sleep(_LOOK_S)
    print("the chains have stopped")


def fund_account(slug: str, address: str, units: int, symbol: str | None) -> None:
    """Send whole units of the coin and of every token, or of only one token, to an account."""
    dev_chain = _chain(slug)
    symbols = [token.symbol for token in dev_chain.deployment.tokens if not token.native]
    if symbol is not None and symbol not in symbols:
        _fail(f"unknown token: choose from {', '.join(symbols)}")
    try:
        parse_address(address)
    except ValueError as error:
        _fail(str(error))

    async def give(chain: DevChainRpc) -> None:
        await fund(chain, dev_chain.deployment, address, units, symbol)

    _run_on(dev_chain, give)
    received = symbol or f"the coin and {', '.join(symbols)}"
    unit = "unit" if units == 1 else "units"
    print(f"{address} received {units} {unit} of {received} on {slug}")


def mine(slug: str, count: int) -> None:
    """Mine blocks immediately, and print the latest block number."""

    async def make(chain: DevChainRpc) -> int:
        await chain.ask("anvil_mine", hex(count))
        return await chain.number("eth_blockNumber")

    print(f"{slug} is at block {_run_on(_chain(slug), make)}")


def replace_blocks(slug: str, depth: int) -> None:
    """Replace the last blocks with empty blocks, and print the latest block number."""

    async def replace(chain: DevChainRpc) -> int:
        await chain.ask("anvil_reorg", depth, [])
        return await chain.number("eth_blockNumber")

    head = _run_on(_chain(slug), replace)
    blocks = "the last block" if depth == 1 else f"the last {depth} blocks"
    print(f"{slug}: replaced {blocks}, up to block {head}")


async def _run(var_dir: Path, ports: Ports) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    dev_chains = DevChains(var_dir, ports.chains, _OWNER)
    try:
        await dev_chains.start(stop)
        if stop.is_set():
            return 0
        ready = {slug: await dev_chains.make_ready(slug) for slug in dev_chains.running}
        write_private(var_dir / _READY, msgspec.json.encode(describe_all(ready)).decode())
        print("ready", flush=True)
        miners = [asyncio.create_task(_mine(chain, dev_chains)) for chain in ready.values()]
        await dev_chains.supervise(stop)
        for miner in miners:
            miner.cancel()
        await asyncio.gather(*miners, return_exceptions=True)
    except (AnvilError, DevChainError, ChainsBusyError) as error:
        _fail(str(error))
    finally:
        await dev_chains.stop()
        (var_dir / _READY).unlink(missing_ok=True)
    return 0


async def _mine(chain: DevChain, dev_chains: DevChains) -> None:
    async def is_busy() -> bool:
        return False  # blocks are mined only for unsettled transactions

    async def redeploy() -> str:
        return (await dev_chains.make_ready(chain.slug)).instance

    async with open_chain(chain.url) as rpc:
        await Miner(rpc, chain.instance, is_busy, redeploy).run()


def _spawn(var_dir: Path) -> None:
    """Start the chains in a background process, and wait until they are ready."""
    log = var_dir / "logs" / "devchain.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    (var_dir / _READY).unlink(missing_ok=True)  # a killed process may have left it behind
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "payintent", "devchain", "up", "--foreground"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    deadline = time.monotonic() + READY_TIMEOUT_S
    while not (var_dir / _READY).exists():
        if process.poll() is not None:
            lines = log.read_text(errors="replace").strip().splitlines()
            _fail((lines or ["the chains stopped early"])[-1].removeprefix("payintent devchain: "))
        if time.monotonic() > deadline:
            process.terminate()
            _fail(f"the chains did not start; see {log}")
        time.sleep(_LOOK_S)


def _chain(slug: str) -> DevChain:
    if slug not in SLUGS:
        _fail(f"unknown chain: choose from {', '.join(SLUGS)}")
    var_dir = _var_dir()
    stored = read_chain(var_dir / "chains" / slug)
    if stored is None:
        _fail(f"{var_dir} has no chain {slug}: {_HINT}")
    return stored


def _run_on(chain: DevChain, act: Callable[[DevChainRpc], Awaitable[T]]) -> T:
    """Run an action on a chain; if it fails, print the error in a single line and exit."""

    async def work() -> T:
        async with open_chain(chain.url) as rpc:
            return await act(rpc)

    try:
        return asyncio.run(work())
    except UnreachableDevChainError as error:
        _fail(f"{error}; {_HINT}")
    except DevChainError as error:
        _fail(str(error))


def _var_dir() -> Path:
    return Path(os.environ.get("VAR_DIR", "var")).resolve()


def _ports() -> Ports:
    try:
        return Ports.from_environment()
    except ValueError as error:
        _fail(str(error))


def _fail(message: str) -> NoReturn:
    print(f"payintent devchain: {message}", file=sys.stderr)
    raise typer.Exit(1)
