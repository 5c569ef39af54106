"""Debian's HAProxy with deploy/cells/haproxy.cfg, in front of the tests' installations."""

import asyncio
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.docs.parse_pages import page
from tests.support.ports import free_port
from tests.support.tools import tool

_WAIT_S = 30.0
_LOOK_S = 0.02
_AGAIN_S = 2.0
_LOADED = "Loading success."
#: The ports of each installation's API processes, by the installation's mark.
Installations = Mapping[str, Sequence[int]]


class InstallationProxy:
    """HAProxy with a backend for each installation, its port and its log."""

    def __init__(self, folder: Path, installations: Installations) -> None:
        self._folder = folder
        self._file = folder / "haproxy.cfg"
        self._log = folder / "haproxy.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self.configure(installations)

    @property
    def url(self) -> str:
        """Return the public address."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """Return HAProxy's log."""
        return self._log.read_text()

    def configure(self, installations: Installations) -> None:
        """Write the configuration. A running HAProxy applies it after `reload`."""
        text = _relocate(page("deploy/cells/haproxy.cfg"), self._folder, self.port)
        head, routes, middle, backends, tail = _parts(text)
        route, backend = routes.splitlines(keepends=True)[0], backends.partition("\n\n")[0]
        servers = re.compile(r"(?:    server .*\n?)+")
        routes = "".join(route.replace("a1", mark) for mark in installations)
        lines = [
            servers.sub(_servers(ports), backend.replace("backend a1", f"backend {mark}"))
            for mark, ports in installations.items()
        ]
        self._file.write_text(head + routes + middle + "\n\n".join(lines) + "\n\n" + tail)

    async def __aenter__(self) -> Self:
        """Start HAProxy, and wait until it serves."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [tool("haproxy"), "-W", "-f", str(self._file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        async with asyncio.timeout(_WAIT_S):
            await self._loaded(1)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop HAProxy and its workers."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            await asyncio.to_thread(self._process.wait, 5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)

    async def reload(self) -> None:
        """Reload the configuration, as `systemctl reload haproxy` does."""
        assert self._process is not None
        times = self.log.count(_LOADED)
        async with asyncio.timeout(_WAIT_S):
            while True:
                self._process.send_signal(signal.SIGUSR2)
                with suppress(TimeoutError):  # a signal that arrives just after the start is lost
                    async with asyncio.timeout(_AGAIN_S):
                        return await self._loaded(times + 1)

    async def _loaded(self, times: int) -> None:
        """Wait until HAProxy has started to serve this many times."""
        assert self._process is not None
        while self.log.count(_LOADED) < times:
            assert self._process.poll() is None, self.log
            await asyncio.sleep(_LOOK_S)


def adapt_shipped_configuration(route: str, backend: str, folder: Path) -> str:
    """Return the shipped file with an additional frontend line and backend."""
    text = _relocate(page("deploy/cells/haproxy.cfg"), folder, free_port())
    head, routes, middle, backends, tail = _parts(text)
    return head + routes + route + middle + backends + backend + "\n" + tail


def _relocate(text: str, folder: Path, port: int) -> str:
    """Remove the user and the certificate from the shipped file."""
    for shipped, own in (
        ("    user haproxy\n    group haproxy\n", ""),
        ("/run/haproxy/admin.sock", str(folder / "admin.sock")),
        (
            "bind :443 ssl crt /etc/ssl/payintent/haproxy.pem alpn h2,http/1.1",
            f"bind 127.0.0.1:{port}",
        ),
    ):
        assert shipped in text, shipped
        text = text.replace(shipped, own)
    return text


def _parts(text: str) -> tuple[str, str, str, str, str]:
    """Split the file at its `use_backend` lines and its installations' backends."""
    parts = re.fullmatch(
        r"(.*?)((?:    use_backend [^\n]*\n)+)(.*?)(backend a1\n.*?\n\n)"
        r"(# Requests without a key.*)",
        text,
        re.DOTALL,
    )
    assert parts is not None
    head, routes, middle, backends, tail = parts.groups()
    return head, routes, middle, backends, tail


def _servers(ports: Sequence[int]) -> str:
    return "".join(
        f"    server api{number} 127.0.0.1:{port} check\n"
        for number, port in enumerate(ports, start=1)
    ).rstrip("\n")
