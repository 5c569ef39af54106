"""Finding and fetching anvil: PATH first, only pinned bytes, and errors on a single line."""

import fcntl
import hashlib
import io
import json
import tarfile
import threading
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from payintent_sandbox.chains import anvil_binary
from payintent_sandbox.chains.anvil_binary import (
    AnvilError,
    Binary,
    describe,
    ensure,
    find,
    unsupported_reason,
)
from tests.support.chain import wait_until_true
from tests.support.ports import free_port

pytestmark = pytest.mark.full

POLL_S = 0.02


def create_program(folder: Path, output: str, status: int = 0) -> Path:
    """Create a program that prints this version."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "anvil"
    program.write_text(f"#!/bin/sh\necho '{output}'\nexit {status}\n")
    program.chmod(0o755)
    return program


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with a single empty folder, and the shell."""
    folder = tmp_path / "path"
    folder.mkdir()
    (folder / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.fixture
def tool_folder(tmp_path: Path) -> Path:
    return tmp_path / "tools" / "anvil"


def test_the_binary_on_path_comes_first(path: Path, tool_folder: Path) -> None:
    create_program(tool_folder, "anvil Version: 1.7.1")
    on_path = create_program(path, "anvil Version: 1.9.0-stable")

    binary = find(tool_folder)

    assert binary == Binary(on_path, "1.9.0", "PATH")
    assert describe() == f"anvil 1.9.0 from PATH ({on_path})"


@pytest.mark.parametrize(
    ("output", "status"), [("anvil Version: 1.6.9", 0), ("1.7.1", 1), ("a carpenter's tool", 0)]
)
def test_an_outdated_or_broken_binary_on_path_is_skipped(
    path: Path, tool_folder: Path, output: str, status: int
) -> None:
    create_program(path, output, status)
    assert find(tool_folder) is None

    program = create_program(tool_folder, "anvil Version: 1.7.1")
    assert ensure(tool_folder) == Binary(program, "1.7.1", "the tool folder")


@pytest.mark.parametrize(
    ("system", "machine", "glibc", "word"),
    [
        ("Linux", "x86_64", (2, 35), ""),
        ("Linux", "x86_64", (2, 41), ""),
        ("Linux", "x86_64", (2, 34), "glibc 2.35"),
        ("Linux", "x86_64", (), "glibc 2.35"),
        ("Linux", "riscv64", (2, 41), "riscv64"),
        ("Plan9", "x86_64", (2, 41), "Plan9"),
    ],
)
def test_an_unsupported_machine_is_reported_with_the_reason(
    system: str, machine: str, glibc: tuple[int, ...], word: str
) -> None:
    reason = unsupported_reason(system, machine, glibc)

    assert bool(reason) == bool(word)
    assert word in reason
    assert len(reason.splitlines()) <= 1


class Mirror(BaseHTTPRequestHandler):
    """A registry with a different anvil package, which at first returns errors."""

    errors_left = 0
    requested: list[str]

    def do_GET(self) -> None:
        self.requested.append(self.path)
        if type(self).errors_left:
            type(self).errors_left -= 1
            self._answer(503, b"{}")
        elif self.path.endswith(".tgz"):
            self._answer(200, _forged())
        else:
            self._answer(200, json.dumps(self._about()).encode())

    def log_message(self, *_: object) -> None:
        pass

    def _about(self) -> dict[str, object]:
        name, version = "@foundry-rs/anvil-linux-amd64", anvil_binary.VERSION
        digest = b64encode(hashlib.sha512(_forged()).digest()).decode()
        url = f"http://127.0.0.1:{self.server.server_address[1]}/anvil.tgz"
        dist = {"tarball": url, "integrity": f"sha512-{digest}"}
        manifest = {"name": name, "version": version, "dist": dist}
        return {"name": name, "dist-tags": {"latest": version}, "versions": {version: manifest}}

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@cache
def _forged() -> bytes:
    """Create an archive once, because its digest depends on the time."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        about = json.dumps({"name": "forged", "version": anvil_binary.VERSION}).encode()
        for name, body in (("bin/anvil", b"#!/bin/sh\n"), ("package.json", about)):
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(body)
            tar.addfile(member, io.BytesIO(body))
    return content.getvalue()


@pytest.fixture
def hurried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: Path) -> pytest.MonkeyPatch:
    """An npm with short timeouts and no cache, and an unreachable registry."""
    monkeypatch.setenv("npm_config_registry", f"http://127.0.0.1:{free_port()}/")
    monkeypatch.setenv("npm_config_fetch_retries", "0")
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "cache"))
    return monkeypatch


@pytest.fixture
def mirror(hurried: pytest.MonkeyPatch) -> Iterator[type[Mirror]]:
    handler = type("Served", (Mirror,), {"requested": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    hurried.setenv("npm_config_registry", f"http://127.0.0.1:{server.server_address[1]}/")
    thread = threading.Thread(target=server.serve_forever, args=[POLL_S])
    thread.start()
    yield handler
    server.shutdown()
    thread.join()
    server.server_close()


def list_leftovers(tool_folder: Path) -> set[str]:
    return {path.name for path in tool_folder.parent.iterdir()} - {f"{tool_folder.name}.lock"}


@pytest.mark.usefixtures("hurried")
def test_without_a_network_the_fetch_fails_with_one_line_and_leaves_no_files(
    tool_folder: Path,
) -> None:
    with pytest.raises(AnvilError) as caught:
        ensure(tool_folder)

    assert "cannot be fetched (npm: code ECONNREFUSED)" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert list_leftovers(tool_folder) == set()


def test_a_package_that_does_not_match_the_pinned_digest_is_refused(
    mirror: type[Mirror], tool_folder: Path
) -> None:
    with pytest.raises(AnvilError, match="does not match the pinned digest"):
        ensure(tool_folder)

    assert mirror.requested[-1].endswith(".tgz")
    assert list_leftovers(tool_folder) == set()


def test_a_registry_error_is_retried(mirror: type[Mirror], tool_folder: Path) -> None:
    mirror.errors_left = 1

    with pytest.raises(AnvilError, match="does not match the pinned digest"):
        ensure(tool_folder)

    assert mirror.errors_left == 0


def has_waiter(lock: Path) -> bool:
    """Return whether a process waits for a lock, according to the kernel's list."""
    end = f":{lock.stat().st_ino}"
    waiting = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return any(line[1] == "->" and line[6].endswith(end) for line in waiting)


@pytest.mark.usefixtures("hurried")
def test_a_process_that_waits_for_a_concurrent_fetch_uses_its_result(tool_folder: Path) -> None:
    tool_folder.parent.mkdir(parents=True)
    lock = tool_folder.with_name(f"{tool_folder.name}.lock")
    with lock.open("w") as lock_file, ThreadPoolExecutor(1) as pool:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        waiting = pool.submit(ensure, tool_folder)
        wait_until_true(lambda: has_waiter(lock))
        fetched = create_program(tool_folder.with_name("fetched"), "anvil Version: 1.7.1").parent
        fetched.rename(tool_folder)
        fcntl.flock(lock_file, fcntl.LOCK_UN)
        binary = waiting.result()

    assert binary.path == tool_folder / "anvil"


def test_npm_receives_certificates_and_proxies_but_no_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NODE_EXTRA_CA_CERTS", raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", "/etc/our-authority.pem")
    monkeypatch.setenv("https_proxy", "http://proxy.test:3128")
    monkeypatch.setenv("PAYINTENT_PEPPER", "secret")

    environment = anvil_binary.npm_environment()

    assert environment["NODE_EXTRA_CA_CERTS"] == "/etc/our-authority.pem"
    assert environment["https_proxy"] == "http://proxy.test:3128"
    assert "PAYINTENT_PEPPER" not in environment


def test_a_folder_that_is_not_writable_is_reported_on_one_line(path: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(AnvilError, match="cannot be stored") as caught:
        ensure(tmp_path / "file" / "anvil")

    assert len(str(caught.value).splitlines()) == 1
