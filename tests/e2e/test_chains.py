"""Test token payments on the sandbox's chains, and the recovery of killed chains."""

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
from tests.support.ports import free_port
from tests.support.timeouts import wait_until

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


class on_stage:  # noqa: N801 - it is used like a function
    """A buyer and a merchant of the current sandbox."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    async def __aenter__(self) -> DemoStage:
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30))
        description = read_sandbox(self._sandbox.var_dir / "dev.json")
        return DemoStage(sandbox=description, http=self._http, console=Console(file=sys.stdout))

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()


async def is_active(stage: DemoStage, slug: str) -> bool:
    """Return whether the service offers a chain's methods: its watcher is near the head."""
    return (await stage.call("GET", f"/chains/{slug}"))["status"] == "active"


def test_dev_json_describes_the_chains_and_only_its_owner_can_read_their_keys(
    sandbox: Sandbox,
) -> None:
    chains = sandbox.dev_json["chains"]
    assert {slug: chain["network_id"] for slug, chain in chains.items()} == {
        "ethereum": 1,
        "bsc": 56,
        "native": 612_055,
    }
    for index, chain in enumerate(chains.values()):
        assert chain["rpc_url"] == f"http://127.0.0.1:{sandbox.port_base + 5 + index}"
        assert set(chain) == {"network_id", "rpc_url", "contract_address", "tokens", "buyer"}
        assert set(chain["buyer"]) == {"address", "private_key"}
    assert chains["ethereum"]["tokens"]["USDT"]["decimals"] == 6
    assert chains["bsc"]["tokens"]["USDT"]["decimals"] == 18
    assert chains["native"]["tokens"]["NATIVED"] == {"address": None, "decimals": 18}
    key = chains["bsc"]["buyer"]["private_key"]
    files = [path for path in sandbox.var_dir.rglob("*.json") if key in path.read_text()]
    assert {path.name for path in files} == {"dev.json", "chain.json"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


async def test_the_api_returns_the_wallet_configuration_of_each_chain(
    sandbox: Sandbox, stage: DemoStage
) -> None:
    for slug, description in sandbox.dev_json["chains"].items():
        chain = await stage.call("GET", f"/chains/{slug}")
        assert chain["wallet_chain"]["rpcUrls"] == [description["rpc_url"]]
        assert chain["contract_address"].lower() == description["contract_address"]


async def test_a_buyer_pays_in_every_token_and_the_merchant_is_notified(stage: DemoStage) -> None:
    assert set(PAID_IN) >= {("ethereum", "USDT"), ("bsc", "USDT"), ("native", "USDT")}
    await pay_in_tokens(stage)  # checks the webhook, status, provider and paid_at
    assert len(stage.payment_ids) == len(PAID_IN)


async def test_transfers_that_do_not_match_their_session_are_refunded(stage: DemoStage) -> None:
    await pay_otherwise(stage)


def test_doctor_checks_the_chains(sandbox: Sandbox) -> None:
    lines = sandbox.command("doctor").splitlines()
    assert any(line.startswith("anvil") and "1." in line for line in lines)
    for slug in sandbox.dev_json["chains"]:
        report = "\n".join(line for line in lines if line.startswith(slug))
        assert "2 blocks after the last final block" in report
        assert "decimals" in report
        assert "has our code and pays" in report
        assert "FAIL" not in report


async def test_a_killed_chain_that_lost_its_state_restarts_and_accepts_payments(
    sandbox: Sandbox, stage: DemoStage
) -> None:
    url, folder = sandbox.dev_json["chains"]["bsc"]["rpc_url"], sandbox.var_dir / "chains" / "bsc"
    async with open_chain(url) as chain:
        before = await instance(chain)
        pid = chain_process(sandbox, 56)
        os.kill(pid, signal.SIGKILL)
        (folder / "state.json").unlink(missing_ok=True)
        await wait_until(lambda: not is_alive(pid), "the chain has stopped")
        await wait_until(lambda: answers(url, 56), "the chain has restarted")
        assert await instance(chain) != before
    chain_file = folder / "chain.json"
    await wait_until(
        lambda: before not in chain_file.read_text(), "the sandbox has set up the new chain"
    )
    await wait_until(lambda: is_active(stage, "bsc"), "the chain is active again")
    await pay_in_tokens(stage)


async def test_a_killed_sandbox_restarts_with_the_same_chains() -> None:
    fetched_anvil()
    with running_sandbox() as sandbox:
        before = sandbox.dev_json
        processes = sandbox.processes()
        for pid in processes:
            with suppress(ProcessLookupError):  # a database connection's process may have ended
                os.kill(pid, signal.SIGKILL)
        await wait_until(
            lambda: not any(is_alive(pid) for pid in processes[1:]), "all processes have stopped"
        )
        assert sandbox.stop() == -signal.SIGKILL
        sandbox.start()
        buyers = [chain["buyer"] for chain in sandbox.dev_json["chains"].values()]
        assert buyers == [chain["buyer"] for chain in before["chains"].values()]
        async with on_stage(sandbox) as stage:
            await pay_in_tokens(stage)
        processes = sandbox.processes()
        assert sandbox.stop() == 0
        assert [pid for pid in processes if is_alive(pid)] == []


async def test_the_sandbox_runs_without_chains_if_anvil_is_missing(tmp_path: Path) -> None:
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
        assert sandbox.dev_json["chains"] == {}
        async with on_stage(sandbox) as stage:
            payment = await stage.create("49.90", "USD", "A book", expires_in=60)
            response = await stage.call("GET", f"/checkout/{payment['checkout_id']}/quotes")
            assert {quote["kind"] for quote in response["quotes"]} == {"card", "redirect"}
            assert (await stage.call("GET", "/chains/bsc"))["slug"] == "bsc"


def chain_process(sandbox: Sandbox, network_id: int) -> int:
    [chain_pid] = [
        pid for pid in children_of(sandbox.pid) if f"--chain-id {network_id} " in command_line(pid)
    ]
    return chain_pid


def bare_python(folder: Path) -> str:
    """Create a virtual environment with the same packages but without downloaded tools."""
    venv.EnvBuilder(symlinks=True).create(folder)
    [packages] = folder.glob("lib/python*/site-packages")
    packages.rmdir()
    packages.symlink_to(sysconfig.get_path("purelib"))
    return str(folder / "bin" / "python")


def path_without_anvil() -> str:
    folders = os.environ["PATH"].split(os.pathsep)
    return os.pathsep.join(folder for folder in folders if not (Path(folder) / "anvil").exists())
