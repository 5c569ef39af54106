"""Stripe's mock server, which rejects requests that Stripe's published contract does not allow.

Go builds it once, from the version pinned here.
"""

import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.support.ports import free_port
from tests.support.timeouts import PATIENCE_S

VERSION = "v0.203.0"
#: The checksum of the module's sources, as printed by `go version -m`.
CHECKSUM = "h1:EzW7nb/fphqcAkgVRHAaC88OaAZo6SBWSl54cflDTio="
SECRET_KEY = "sk_test_123"
_MODULE = "github.com/stripe/stripe-mock"
_FOLDER = Path(__file__).parents[2] / "var" / "go"
_BUILD_S = 600


def build() -> Path | None:
    """Return the program, or None without Go or a connection to the Go module proxy."""
    go, program = shutil.which("go"), _FOLDER / "bin" / "stripe-mock"
    if go is None:
        return None
    if not program.exists():
        environment = os.environ | {"GOPATH": str(_FOLDER), "GOFLAGS": "-modcacherw"}
        command = [go, "install", f"{_MODULE}@{VERSION}"]
        result = subprocess.run(command, env=environment, timeout=_BUILD_S, check=False)
        if result.returncode:
            return None
    built = subprocess.run(
        [go, "version", "-m", program], capture_output=True, text=True, check=True
    )
    assert [_MODULE, VERSION, CHECKSUM] in [line.split()[1:] for line in built.stdout.splitlines()]
    return program


@contextmanager
def running(program: Path) -> Generator[str]:
    """Run the server on a free port, and yield its URL."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with subprocess.Popen(
        [program, "-http-port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            _wait(url, process)
            yield url
        finally:
            process.terminate()


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while process.poll() is None:
        assert time.monotonic() < deadline, "stripe-mock never became healthy"
        try:
            urllib.request.urlopen(url, timeout=1)  # noqa: S310 - our own
        except urllib.error.HTTPError:  # the server is responding
            return
        except OSError:
            time.sleep(0.05)
    raise AssertionError("stripe-mock does not start")
