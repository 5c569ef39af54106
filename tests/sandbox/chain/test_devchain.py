"""`payintent devchain`: the chains without the sandbox, and the commands for testers."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from payintent_sandbox.chains.anvil_binary import Binary
from payintent_sandbox.chains.commands import app
from payintent_sandbox.chains.contracts import PLAIN_TOKEN, load
from tests.support.chain import Deployed, Evm
from tests.support.ports import free_port_base

pytestmark = pytest.mark.full

TIMEOUT_S = 90


class Terminal:
    """A terminal for `payintent devchain …`, with a separate folder."""

    def __init__(self, var_dir: Path) -> None:
        self.var_dir = var_dir
        self.base = free_port_base()

    def run(self, *words: object) -> Result:
        env = {"VAR_DIR": str(self.var_dir), "PORT_BASE": str(self.base)}
        return CliRunner().invoke(app, [str(word) for word in words], env=env)

    def up(self) -> str:
        """Start the chains with the real command, which exits and leaves them running."""
        result = subprocess.run(
            [sys.executable, "-m", "payintent", "devchain", "up"],
            env=os.environ | {"VAR_DIR": str(self.var_dir), "PORT_BASE": str(self.base)},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert (result.returncode, result.stderr) == (0, "")
        return result.stdout

    def good(self, *words: object) -> str:
        result = self.run(*words)
        assert (result.exit_code, result.stderr) == (0, "")
        return result.stdout

    def bad(self, *words: object) -> str:
        result = self.run(*words)
        assert result.exit_code == 1, result.output
        [line] = result.stderr.splitlines()
        return line.removeprefix("payintent devchain: ")

    def chains(self) -> dict[str, Any]:
        return json.loads((self.var_dir / "devchain.json").read_text())


@pytest.fixture
def terminal(anvil: Binary, tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path / "var")
    yield terminal
    terminal.run("down")


def block(evm: Evm, tag: str = "latest") -> dict[str, Any]:
    return evm.ask("eth_getBlockByNumber", tag, False)


def test_the_chains_run_without_the_sandbox_and_preserve_their_state(terminal: Terminal) -> None:
    from eth_account import Account

    output = terminal.up()
    chains = terminal.chains()
    assert stat.S_IMODE((terminal.var_dir / "devchain.json").stat().st_mode) == 0o600
    assert list(chains) == ["ethereum", "bsc", "native"]
    ports = [int(chain["rpc_url"].rpartition(":")[2]) for chain in chains.values()]
    assert ports == [terminal.base + 5, terminal.base + 6, terminal.base + 7]
    assert not any(chain["buyer"]["private_key"] in output for chain in chains.values())
    assert "already running" in terminal.bad("up")

    evm = Evm(chains["bsc"]["rpc_url"])
    try:
        usdt = Deployed(evm, load(PLAIN_TOKEN), chains["bsc"]["tokens"]["USDT"]["address"])
        recipient = Account.create().address
        terminal.good("fund", "bsc", recipient, "--units", 7)
        assert (evm.coins(recipient), usdt.call("balanceOf", recipient)) == (7 * 10**18, 7 * 10**18)
        before = block(evm)
        terminal.good("mine", "bsc", 4)
        number = int(before["number"], 16)
        assert int(block(evm)["number"], 16) >= number + 4
        middle = block(evm, hex(number + 3))
        terminal.good("reorg", "bsc", int(block(evm)["number"], 16) - number)
        assert block(evm, hex(number))["hash"] == before["hash"]
        assert block(evm, hex(number + 3))["hash"] != middle["hash"]
    finally:
        evm.close()

    assert "have stopped" in terminal.good("down")
    assert "does not respond" in terminal.bad("mine", "bsc")
    terminal.up()
    assert terminal.chains() == chains
    evm = Evm(chains["bsc"]["rpc_url"])
    assert evm.coins(recipient) == 7 * 10**18
    assert block(evm, hex(number))["hash"] == before["hash"]
    evm.close()


def test_errors_of_the_commands_are_reported_in_one_line(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path / "var")
    assert terminal.good("down") == "no chains are running\n"
    assert terminal.bad("mine", "moon") == "unknown chain: choose from ethereum, bsc, native"
    assert "run `make dev` or `payintent devchain up`" in terminal.bad("mine", "bsc")
