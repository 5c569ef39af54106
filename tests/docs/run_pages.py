"""Run a page's commands in shells, in a folder that represents a machine with systemd."""

import configparser
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.docs.parse_pages import ROOT
from tests.support.timeouts import PATIENCE_S

_FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$|^(## [^\n]+)$", re.MULTILINE | re.DOTALL)
_PROPOSED = 3  # the exit status of a command that needs approval
#: Records each failed command and continues, as a terminal does, even in pipes and subshells.
_BEGIN = r"""
set -E -o pipefail
trap 'printf "%s %s\n" "$?" "$BASH_COMMAND" >> "$FAILED"' ERR
"""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, and the person who runs it."""

    heading: str
    language: str
    text: str

    @property
    def person(self) -> str:
        """The person in the first line, as in `# Alan`. The default is Ada."""
        comment = re.match(r"# (Ada|Alan)\n", self.text)
        return comment[1] if comment else "Ada"


def read_blocks(text: str) -> list[Block]:
    """Return every fenced block of a page, in order."""
    heading = ""
    blocks: list[Block] = []
    for language, body, title in _FENCE.findall(text):
        if title:
            heading = title
        else:
            blocks.append(Block(heading, language, body))
    return blocks


@dataclass(frozen=True)
class Played:
    """The output of a block, and its failed commands with their status."""

    output: str
    failed: Sequence[str]


class Shell:
    """A person's terminal: a persistent shell that keeps its exports."""

    def __init__(self, folder: Path, environment: Mapping[str, str], cwd: Path) -> None:
        self._folder = folder
        self._played = 0
        folder.mkdir()
        self._failed = folder / "failed"
        self._process = subprocess.Popen(
            [shutil.which("bash") or "bash", "--noprofile", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=cwd,
            env={**environment, "FAILED": str(self._failed)},
        )
        self._type(_BEGIN)

    def play(self, text: str) -> Played:
        """Run a block, and wait until its last command ends."""
        self._played += 1
        script = self._folder / f"{self._played}.sh"
        output = script.with_suffix(".out")
        script.write_text(text)
        self._failed.write_text("")
        self._type(f". {script} > {output} 2>&1 < /dev/null; echo played\n")
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], PATIENCE_S)
        assert ready, f"not within {PATIENCE_S:g} s: {text}"
        assert self._process.stdout.readline() == "played\n", f"the shell has ended: {text}"
        failed = dict.fromkeys(self._failed.read_text().splitlines())
        return Played(
            output.read_text(), [item for item in failed if not item.startswith(f"{_PROPOSED} ")]
        )

    def close(self) -> None:
        """End the shell."""
        self._process.communicate()

    def _type(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text)
        self._process.stdin.flush()


class Systemd:
    """Replaces `systemctl` for the unit files in a folder. It handles requests sequentially."""

    def __init__(self, folder: Path, units: Path) -> None:
        self._units = units
        self._logs = folder / "journal"
        self._logs.mkdir()
        self._requests, self._replies = folder / "requests", folder / "replies"
        for pipe in (self._requests, self._replies):
            os.mkfifo(pipe)
        self._running: list[subprocess.Popen[bytes]] = []
        self._started: set[str] = set()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def program(self) -> str:
        """The `systemctl` program that sends requests to this object."""
        return f'echo "$@" > {self._requests}; exit "$(cat {self._replies})"'

    def logs(self) -> str:
        """Return all output of the processes."""
        return "".join(path.read_text() for path in sorted(self._logs.iterdir()))

    def close(self) -> None:
        """Stop every process, and the thread that waits for requests."""
        self._requests.write_text("end\n")
        self._replies.read_text()
        self._thread.join()
        for process in self._running:
            process.send_signal(signal.SIGKILL)
            process.wait()

    def _serve(self) -> None:
        while True:
            words = self._requests.read_text().split()
            try:
                status = self._obey(words)
            except Exception as error:  # noqa: BLE001 - the log shows it to the test
                (self._logs / "systemctl").write_text(f"{words}: {error!r}\n")
                status = 1
            self._replies.write_text(f"{status}\n")
            if words == ["end"]:
                return

    def _obey(self, words: list[str]) -> int:
        if words[:2] == ["enable", "--now"]:
            self._started.clear()
            return max(self._start(unit) for unit in words[2:])
        # Debian has these services. Here they do nothing.
        allowed = ["daemon-reload", "end"], ["reload", "restart"], ["nginx", "postgresql"]
        assert words[0] in allowed[0] or (words[0] in allowed[1] and words[1] in allowed[2]), words
        return 0

    def _start(self, unit: str) -> int:
        """Start a unit after its required units, with its own file and the hardening."""
        if unit in self._started:  # already started by a different unit
            return 0
        self._started.add(unit)
        prefix, _, instance = unit.removesuffix(".service").partition("@")
        name = f"{prefix}@.service" if instance else f"{prefix}.service"
        text = (self._units / name).read_text()
        hardening = (self._units / "payintent-.service.d" / "hardening.conf").read_text()
        unit_file = configparser.ConfigParser(interpolation=None, strict=False)
        unit_file.read_string(text)
        for dependency in unit_file["Unit"]["Wants"].split():
            if dependency.startswith("payintent-") and self._start(dependency):
                return 1
        command = shlex.split(unit_file["Service"]["ExecStart"].replace("%i", instance))
        with (self._logs / unit).open("ab") as log:
            process = subprocess.Popen(
                command,
                env=self._environment(hardening, prefix),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        if unit_file["Service"].get("Type") == "oneshot":
            return process.wait(PATIENCE_S)
        self._running.append(process)
        return 0

    def _environment(self, hardening: str, prefix: str) -> dict[str, str]:
        """Return the environment of a process. It comes only from the files of its unit."""
        environment = {"PATH": os.defpath, "LANG": "C.UTF-8"}
        for optional, path in re.findall(r"^EnvironmentFile=(-?)(.+)$", hardening, re.MULTILINE):
            file = Path(path.replace("%p", prefix))
            if file.exists() or not optional:
                lines = shlex.split(file.read_text(), comments=True)
                environment |= dict(line.split("=", 1) for line in lines)
        return environment


class Machine:
    """A folder that represents a machine, with /etc, /opt, /usr/local, /var and programs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.checkout = folder / "checkout"
        self._programs = folder / "programs"
        folders = ("etc/systemd/system", "etc/nginx/conf.d", "opt", "usr/local/sbin", "run")
        for path in (self.home, self._programs, *(folder / item for item in folders)):
            path.mkdir(parents=True)
        self.systemd = Systemd(folder / "run", folder / "etc/systemd/system")
        self.install("systemctl", self.systemd.program)

    def install(self, name: str, script: str, subfolder: str = "programs") -> None:
        """Install a program on the machine."""
        path = self.folder / subfolder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def check_out(self, substituted: Mapping[str, str]) -> None:
        """Copy deploy/ into the checkout, with the same changes as the page's commands."""
        for source in (ROOT / "deploy").rglob("*"):
            if source.is_file():
                copy = self.checkout / source.relative_to(ROOT)
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_text(self.substitute(source.read_text(), substituted))
                copy.chmod(source.stat().st_mode)

    def substitute(self, text: str, substituted: Mapping[str, str]) -> str:
        """Replace names in a text with their counterparts on this machine."""
        for there, here in substituted.items():
            text = text.replace(there, here)
        return re.sub(r"(?<![\w.~}])/(?=(?:etc|opt|usr/local|var)/)", f"{self.folder}/", text)

    @contextmanager
    def terminals(self, variables: Mapping[str, str], *persons: str) -> Generator[dict[str, Shell]]:
        """Open a terminal for each person, without the environment of the tests."""
        path = [str(self._programs), str(self.folder / "usr/local/sbin"), os.environ["PATH"]]
        environment = {"HOME": str(self.home), "LC_ALL": "C.UTF-8", "PATH": os.pathsep.join(path)}
        shells = {
            person: Shell(self.folder / person, {**environment, **variables}, self.checkout)
            for person in persons
        }
        try:
            yield shells
        finally:
            for shell in shells.values():
                shell.close()
            self.systemd.close()
