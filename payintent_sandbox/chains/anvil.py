"""Run anvil, a development chain, as a child process with its state in a separate folder."""

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from payintent_sandbox.chains.anvil_binary import AnvilError, Binary, ensure
from payintent_sandbox.ports import taken
from payintent_sandbox.processes import parent_death_launcher, plain_environment

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0  # anvil writes its state before it exits
POLL_S = 0.02
ANSWER_TIMEOUT_S = 5.0
BLOCKS_KEPT = 256  # number of latest blocks whose transactions and logs are kept

_STATES_KEPT = 64  # by default, anvil writes every state to disk: 664 MB for 3,000 blocks
_STATE_INTERVAL_S = 5
_COINS = 1_000_000_000  # balance of each unlocked account; testers are funded from these accounts
_LISTENING = re.compile(r"^Listening on 127\.0\.0\.1:(\d+)$", re.MULTILINE)
_LINES_SHOWN_MAX = 10


def command(
    binary: Path,
    *,
    network_id: int,
    port: int,
    folder: Path | None = None,
    blocks_kept: int | None = BLOCKS_KEPT,
    hardfork: str | None = None,
) -> list[str]:
    """Return the command that starts a chain.

    Without a folder, the chain's state is lost when it stops. Without `blocks_kept`, the chain
    stores all blocks and becomes slower with each block. With port 0, anvil chooses a port and
    prints it, so `--quiet` is omitted.
    """
    return [
        str(binary),
        *("--host", "127.0.0.1", "--port", str(port), "--chain-id", str(network_id)),
        *("--slots-in-an-epoch", "1", "--prune-history", str(_STATES_KEPT)),
        *("--balance", str(_COINS)),
        *(() if blocks_kept is None else ("--transaction-block-keeper", str(blocks_kept))),
        *(() if folder is None else _state_flags(folder)),
        *(() if hardfork is None else ("--hardfork", hardfork)),
        *(("--quiet",) if port else ()),
    ]


def supervised_command(*, network_id: int, port: int, folder: Path) -> list[str]:
    """Return a command for a supervisor, which may run it again after the chain has exited."""
    options = ["--network-id", str(network_id), "--port", str(port), "--folder", str(folder)]
    return [sys.executable, "-m", "payintent_sandbox.chains.anvil", *options]


class Anvil:
    """An anvil process. On Linux, it stops when the thread that started it ends."""

    def __init__(
        self,
        network_id: int,
        *,
        log: Path,
        folder: Path | None = None,
        binary: Binary | None = None,
        blocks_kept: int | None = BLOCKS_KEPT,
        hardfork: str | None = None,
    ) -> None:
        self._network_id = network_id
        self._log = log
        self._folder = folder
        self._binary = binary
        self._blocks_kept = blocks_kept
        self._hardfork = hardfork
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, port: int = 0) -> str:
        """Start the chain, by default on a free port, and return its URL. Raises `AnvilError`."""
        if self.alive():
            return self.url
        if port and taken([port]):  # another process would be mistaken for this chain
            raise AnvilError(f"anvil cannot start: port {port} is in use")
        binary = self._binary or ensure()
        if self._folder is not None:
            prepare_folder(self._folder)
        arguments = command(
            binary.path,
            network_id=self._network_id,
            port=port,
            folder=self._folder,
            blocks_kept=self._blocks_kept,
            hardfork=self._hardfork,
        )
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*parent_death_launcher(), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=plain_environment(),
                start_new_session=True,  # only this process receives Ctrl-C
            )
        self._port = port
        try:
            self._wait_ready()
        except BaseException:
            self.stop()
            raise
        return self.url

    def stop(self) -> None:
        """Stop the chain, which saves its state. Has no effect if the chain is not running."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None
        self._port = 0

    def alive(self) -> bool:
        """Return whether the chain's process is running."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Return the process id, or 0 if no process is running."""
        return self._process.pid if self._process is not None else 0

    @property
    def url(self) -> str:
        """Return the JSON-RPC URL of the running chain."""
        if not self._port:
            raise AnvilError("this chain has not been started")
        return f"http://127.0.0.1:{self._port}"

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and self.alive():
            self._port = self._port or self._chosen_port()
            if self._port and answers(self.url, self._network_id) and self.alive():
                return
            time.sleep(POLL_S)
        lines = self._log.read_text(errors="replace").strip().splitlines()[-_LINES_SHOWN_MAX:]
        raise AnvilError(f"anvil did not start; {self._log} ends: {' '.join(lines)}")

    def _chosen_port(self) -> int:
        match = _LISTENING.search(self._log.read_text(errors="replace"))
        return int(match.group(1)) if match else 0


def answers(url: str, network_id: int) -> bool:
    """Return whether a chain with this network id responds at a URL."""
    with contextlib.suppress(OSError, ValueError):  # a response that is not JSON raises ValueError
        return _ask(url, "eth_chainId") == hex(network_id)
    return False


def prepare_folder(folder: Path) -> None:
    """Create a chain's folder, and rename an incomplete state file left by a killed anvil."""
    folder.mkdir(parents=True, exist_ok=True)
    state = _state(folder)
    if not state.exists():
        return
    try:
        json.loads(state.read_bytes())
    except ValueError:
        state.replace(state.with_suffix(".broken"))


def main() -> None:
    """Replace this process with anvil. The command from `supervised_command` runs this."""
    parser = argparse.ArgumentParser(
        prog="python -m payintent_sandbox.chains.anvil", description=__doc__
    )
    parser.add_argument("--network-id", type=int, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    options = parser.parse_args()
    try:
        binary = ensure()
    except AnvilError as error:
        sys.exit(str(error))
    prepare_folder(options.folder)
    arguments = command(
        binary.path, network_id=options.network_id, port=options.port, folder=options.folder
    )
    os.execv(arguments[0], arguments)  # noqa: S606 - no shell, and that is the point


def _ask(url: str, method: str) -> Any:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": []}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})  # noqa: S310
    with urllib.request.urlopen(request, timeout=ANSWER_TIMEOUT_S) as answer:  # noqa: S310
        return json.load(answer).get("result")


def _state_flags(folder: Path) -> tuple[str, ...]:
    return ("--state", str(_state(folder)), "--state-interval", str(_STATE_INTERVAL_S))


def _state(folder: Path) -> Path:
    return folder / "state.json"


if __name__ == "__main__":
    main()
