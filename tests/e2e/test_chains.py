"""Token payments on the sandbox's chains, and the recovery of chains that were killed."""

import os
import signal
import stat
import sys
import sysconfig
import venv
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest
from rich.console import Console

from payintent_sandbox.chains.anvil import answers
from payintent_sandbox.chains.dev_chains import instance
from payintent_sandbox.chains.rpc import open_chain
from payintent_sandbox.demo.stage import DemoStage, read_sandbox
from payintent_sandbox.demo.tokens import PAID_IN, pay_in_tokens, pay_otherwise
from tests.e2e.sandbox import Sandbox, children_of, command_line, is_alive, running_sandbox
from tests.support.chain import fetched_anvil
from tests.support.patience import wait_until
from tests.support.world import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.full]


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    fetched_anvil()
    with running_sandbox(warm=True) as running:
        yield running


@pytest.fixture
async def stage(sandbox: Sandbox) -> AsyncIterator[DemoStage]:
    async with on_stage(sandbox) as stage:
        yield stage


class on_stage:  # noqa: N801 - it is used as a context
    """A buyer and a merchant of the current sandbox."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    async def __aenter__(self) -> DemoStage:
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30))
        told = read_sandbox(self._sandbox.var_dir / "dev.json")
        return DemoStage(sandbox=told, http=self._http, console=Console(file=sys.stdout))

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()


async def is_sold(stage: DemoStage, slug: str) -> bool:
    """Return whether the service offers a chain's methods, so its watcher is near the head."""
    return (await stage.call("GET", f"/chains/{slug}"))["status"] == "active"


def test_the_sandbox_tells_its_chains_to_their_owner_alone(sandbox: Sandbox) -> None:
    chains = sandbox.told["chains"]
    assert {slug: one["network_id"] for slug, one in chains.items()} == {
        "ethereum": 1,
        "bsc": 56,
        "native": 612_055,
    }
    for place, one in enumerate(chains.values()):
        assert one["rpc_url"] == f"http://127.0.0.1:{sandbox.port_base + 5 + place}"
        assert set(one) == {"network_id", "rpc_url", "contract_address", "tokens", "buyer"}
        assert set(one["buyer"]) == {"address", "private_key"}
    assert chains["ethereum"]["tokens"]["USDT"]["decimals"] == 6
    assert chains["bsc"]["tokens"]["USDT"]["decimals"] == 18
    assert chains["native"]["tokens"]["NATIVED"] == {"address": None, "decimals": 18}
    key = chains["bsc"]["buyer"]["private_key"]
    files = [path for path in sandbox.var_dir.rglob("*.json") if key in path.read_text()]
    assert {path.name for path in files} == {"dev.json", "chain.json"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


async def test_wallets_are_told_where_the_chains_are(sandbox: Sandbox, stage: DemoStage) -> None:
    for slug, one in sandbox.told["chains"].items():
        told = await stage.call("GET", f"/chains/{slug}")
        assert told["wallet_chain"]["rpcUrls"] == [one["rpc_url"]]
        assert told["contract_address"].lower() == one["contract_address"]


async def test_a_buyer_pays_in_every_token_and_the_merchant_is_told(stage: DemoStage) -> None:
    assert set(PAID_IN) >= {("ethereum", "USDT"), ("bsc", "USDT"), ("native", "USDT")}
    await pay_in_tokens(stage)  # it looks at webhook, status, provider and paid_at itself
    assert len(stage.payment_ids) == len(PAID_IN)


async def test_money_that_does_not_fit_ends_as_it_must(stage: DemoStage) -> None:
    await pay_otherwise(stage)


def test_doctor_looks_at_the_chains(sandbox: Sandbox) -> None:
    lines = sandbox.command("doctor").splitlines()
    assert any(line.startswith("anvil") and "1." in line for line in lines)
    for slug in sandbox.told["chains"]:
        told = "\n".join(line for line in lines if line.startswith(slug))
        assert "2 blocks after the last final block" in told
        assert "decimals" in told
        assert "has our code and pays" in told
        assert "FAIL" not in told


async def test_a_chain_that_dies_and_forgets_comes_back_and_takes_payments(
    sandbox: Sandbox, stage: DemoStage
) -> None:
    url, folder = sandbox.told["chains"]["bsc"]["rpc_url"], sandbox.var_dir / "chains" / "bsc"
    async with open_chain(url) as chain:
        before = await instance(chain)
        killed = chain_process(sandbox, 56)
        os.kill(killed, signal.SIGKILL)
        (folder / "state.json").unlink(missing_ok=True)
        await wait_until(lambda: not is_alive(killed), "the chain is dead")
        await wait_until(lambda: answers(url, 56), "the chain is back")
        assert await instance(chain) != before
    kept = folder / "chain.json"
    await wait_until(lambda: before not in kept.read_text(), "the sandbox has looked after it")
    await wait_until(lambda: is_sold(stage, "bsc"), "the chain is watched again")
    await pay_in_tokens(stage)


async def test_a_sandbox_that_was_killed_goes_on_with_its_chains() -> None:
    fetched_anvil()
    with running_sandbox() as sandbox:
        before = sandbox.told
        processes = sandbox.processes()
        for pid in processes:
            with suppress(ProcessLookupError):  # a connection's process comes and goes
                os.kill(pid, signal.SIGKILL)
        await wait_until(lambda: not any(is_alive(pid) for pid in processes[1:]), "all are dead")
        assert sandbox.stop() == -signal.SIGKILL
        sandbox.start()
        buyers = [chain["buyer"] for chain in sandbox.told["chains"].values()]
        assert buyers == [chain["buyer"] for chain in before["chains"].values()]
        async with on_stage(sandbox) as stage:
            await pay_in_tokens(stage)
        processes = sandbox.processes()
        assert sandbox.stop() == 0
        assert [pid for pid in processes if is_alive(pid)] == []


async def test_without_anvil_everything_else_runs(tmp_path: Path) -> None:
    environment = {
        "PATH": path_without_anvil(),
        "npm_config_registry": f"http://127.0.0.1:{free_port()}/",
        "npm_config_fetch_retries": "0",
    }
    with running_sandbox(python=bare_python(tmp_path), environment=environment) as sandbox:
        [line] = [
            item for item in sandbox.output.read_text().splitlines() if "no dev chains" in item
        ]
        assert line.startswith("no dev chains")
        assert "cannot be fetched" in line
        assert sandbox.told["chains"] == {}
        async with on_stage(sandbox) as stage:
            payment = await stage.create("49.90", "USD", "A book", expires_in=60)
            told = await stage.call("GET", f"/checkout/{payment['checkout_id']}/quotes")
            assert {quote["kind"] for quote in told["quotes"]} == {"card", "redirect"}
            assert (await stage.call("GET", "/chains/bsc"))["slug"] == "bsc"


def chain_process(sandbox: Sandbox, network_id: int) -> int:
    [found] = [
        pid for pid in children_of(sandbox.pid) if f"--chain-id {network_id} " in command_line(pid)
    ]
    return found


def bare_python(folder: Path) -> str:
    """Create an environment with the same packages but without fetched tools."""
    venv.EnvBuilder(symlinks=True).create(folder)
    [packages] = folder.glob("lib/python*/site-packages")
    packages.rmdir()
    packages.symlink_to(sysconfig.get_path("purelib"))
    return str(folder / "bin" / "python")


def path_without_anvil() -> str:
    folders = os.environ["PATH"].split(os.pathsep)
    return os.pathsep.join(folder for folder in folders if not (Path(folder) / "anvil").exists())
