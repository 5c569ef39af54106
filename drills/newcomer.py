"""Follow docs/integrate/quickstart.md in a clean clone, as a newcomer would.

The drill prints the duration of each block. The exit status is 1 if a command fails or does not
print the output that the page shows. The clone does not use this checkout's environment, so it
installs its own packages.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.docs.run_pages import Block, read_blocks
from tests.support.ports import free_port, free_port_base

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "integrate" / "quickstart.md"
#: The text that a terminal prints when its long-running command is ready.
READY = {"1": "ready", "3": "the shop is open", "4": "forwarding"}
_FILE = re.compile(r"(?:#|//) (var/quickstart/\S+)\n")
IN_A_CLONE, WITH_AN_INSTALLATION = "in a clone", "with an installation"
_TERMINAL = re.compile(rf"# terminal (\d)(?:, ({IN_A_CLONE}|{WITH_AN_INSTALLATION}))?\n")
#: Prefixes of environment variables that a newcomer does not have.
_OURS = ("MAKE", "PAYINTENT_", "PORT_BASE", "PYTHON", "SIM_", "VAR_DIR", "VIRTUAL_ENV")
_PATIENCE_S = 300.0
_LOOK_S = 0.05
_END_S = 60.0
#: The webhooks that the shop has printed at the end: two from trigger commands, three from scripts.
WEBHOOKS = {"payment.completed": 3, "payment.failed": 1, "payment.expired": 1}


class StrangerError(Exception):
    """A command on the page failed, or did not print the expected output."""


@dataclass(frozen=True, slots=True)
class Played:
    """A block and its duration."""

    block: Block
    took_s: float


def clone(folder: Path) -> Path:
    """Clone this repository's last commit, without uncommitted files."""
    target = folder / "clone"
    command = ["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(target)]
    subprocess.run(command, check=True)
    return target


class Terminals:
    """The page's terminals, which are long-running shells in the clone."""

    def __init__(
        self,
        folder: Path,
        cwd: Path,
        replaced: dict[str, str],
        base: int,
        ready: Mapping[str, str] = READY,
    ) -> None:
        self._folder = folder
        self._cwd = cwd
        self._replaced = replaced
        self._ready = ready
        self._shells: dict[str, subprocess.Popen[str]] = {}
        inherited = {name: os.environ[name] for name in os.environ if not name.startswith(_OURS)}
        home = folder / "home"
        home.mkdir()
        self._environment = {**inherited, "HOME": str(home), "PORT_BASE": str(base)}

    def write(self, path: str, text: str) -> None:
        """Write a file to the clone, with this drill's ports."""
        (self._cwd / path).write_text(self._replace(text))

    def type(self, name: str, text: str) -> None:
        """Run a block, and wait until it ends or its long-running command is ready."""
        shell = self._shells.get(name) or self._open(name)
        done_file = self._folder / f"{name}.done"
        done_file.unlink(missing_ok=True)
        assert shell.stdin is not None  # noqa: S101 - the shell has a pipe
        shell.stdin.write(f"set -e\n{self._replace(text)}\ntouch {done_file}\n")
        shell.stdin.flush()
        self.wait(name, self._ready.get(name), done_file)

    def wait(self, name: str, printed: str | None, done_file: Path | None = None) -> None:
        """Wait until a terminal has printed `printed` or created the `done` file."""
        deadline = time.monotonic() + _PATIENCE_S
        while not (
            (printed and printed in self.output(name)) or (done_file and done_file.exists())
        ):
            if self._shells[name].poll() is not None:
                raise StrangerError(f"terminal {name} has ended:\n{self.output(name)}")
            if time.monotonic() > deadline:
                raise StrangerError(f"terminal {name} did not finish in time:\n{self.output(name)}")
            time.sleep(_LOOK_S)

    def output(self, name: str) -> str:
        return (self._folder / f"{name}.out").read_text()

    def close(self) -> None:
        """Stop all terminals and their commands, in reverse order."""
        for shell in reversed(self._shells.values()):
            if shell.stdin is not None:
                shell.stdin.close()
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGINT)
            try:
                shell.wait(_END_S)
            except subprocess.TimeoutExpired:
                os.killpg(shell.pid, signal.SIGKILL)
                shell.wait()

    def _open(self, name: str) -> "subprocess.Popen[str]":
        with (self._folder / f"{name}.out").open("w") as output:
            self._shells[name] = subprocess.Popen(
                [shutil.which("bash") or "bash", "--noprofile", "--norc"],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                text=True,
                cwd=self._cwd,
                env=self._environment,
                start_new_session=True,
            )
        return self._shells[name]

    def _replace(self, text: str) -> str:
        for ours, theirs in self._replaced.items():
            text = text.replace(ours, theirs)
        return text


def play(folder: Path) -> Iterator[Played]:
    """Run every block of the page in a clean clone."""
    base, shop = free_port_base(), free_port()
    ports = {"127.0.0.1:8080": f"127.0.0.1:{base}", "127.0.0.1:3000": f"127.0.0.1:{shop}"}
    ports['("127.0.0.1", 3000)'] = f'("127.0.0.1", {shop})'
    with ExitStack() as stack:
        terminals = Terminals(folder, clone(folder), ports, base)
        stack.callback(terminals.close)
        yield from play_page(terminals, read_blocks(PAGE.read_text()), IN_A_CLONE)


def play_page(terminals: Terminals, blocks: Iterable[Block], reader: str) -> Iterator[Played]:
    """Run the quickstart's blocks for all readers and for `reader`, then check the output."""
    for block in blocks:
        began = time.monotonic()
        if (file := _FILE.match(block.text)) is not None:
            terminals.write(file[1], block.text)
        elif (terminal := _TERMINAL.match(block.text)) is None:
            raise StrangerError(f"a block does not name its terminal or file:\n{block.text}")
        elif terminal[2] in {None, reader}:
            terminals.type(terminal[1], block.text)
        else:
            continue
        yield Played(block, time.monotonic() - began)
    for kind, count in WEBHOOKS.items():
        _expect(terminals, "3", f"webhook {kind} ", count)
    for status in ("PAID", "PARTIALLY_REFUNDED"):
        _expect(terminals, "2", status, 2)


def _expect(terminals: Terminals, name: str, start: str, count: int) -> None:
    """Wait for `count` lines with this prefix. More lines are also a failure."""
    deadline = time.monotonic() + _PATIENCE_S
    while (line_count := _lines(terminals, name, start)) < count and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    if line_count != count:
        output = terminals.output(name)
        raise StrangerError(
            f"lines starting with {start!r} in terminal {name}: "
            f"{line_count} instead of {count}\n{output}"
        )


def _lines(terminals: Terminals, name: str, start: str) -> int:
    return sum(line.startswith(start) for line in terminals.output(name).splitlines())


def main() -> None:
    """Follow the page, and print the durations."""
    console = Console(width=110)
    table = Table(title="docs/integrate/quickstart.md in a clean clone")
    for name in ("part", "first command or file", "s"):
        table.add_column(name, justify="right" if name == "s" else "left")
    total = 0.0
    with tempfile.TemporaryDirectory(prefix="payintent-stranger-") as scratch:
        folder = Path(scratch)
        folder.chmod(0o711)  # so that the database's user can access the data
        try:
            for played in play(folder):
                words = played.block.text.splitlines()
                first = words[0] if _FILE.match(played.block.text) else words[1]
                heading = played.block.heading.removeprefix("## ")
                table.add_row(heading, first[:60], f"{played.took_s:.1f}")
                total += played.took_s
        except StrangerError as error:
            console.print(table)
            sys.exit(f"newcomer: {error}")
    table.add_row("all", "", f"{total:.1f}")
    console.print(table)
    print("newcomer: all commands worked as described on the page")


if __name__ == "__main__":
    main()
