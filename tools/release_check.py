"""Install a release into an empty environment, run it, and pay with the SDK that it serves."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

_START_TIMEOUT_S = 180.0
_POLL_S = 0.2
_PORT_BASE = "27000"
_PAY = """
import os
from payintent_sdk import VERSION, Client

with Client(os.environ["PAYINTENT_API_KEY"], os.environ["PAYINTENT_URL"]) as client:
    payment = client.payments.create(amount="1590.00", currency="THB", payer_uid="buyer-17")
    print(VERSION, client.test_payments.pay(payment.id).status)
"""


def verify(release: Path) -> None:
    """Install the service from `release` and a merchant's SDK from the service, and make a payment.

    Third-party packages come from the package index and are pinned by the locks of the release.
    Raises `SystemExit` if the payment is not PAID.
    """
    with TemporaryDirectory(prefix="payintent-release-") as scratch:
        folder = Path(scratch)
        folder.chmod(0o711)  # PostgreSQL runs as a different user
        service = _make_environment(folder / "service")
        lock = release / "requirements-sandbox.txt"
        _run(service / "pip", "install", "-q", "--require-hashes", "-r", lock)
        wheels = [*release.glob("payintent-*.whl"), *release.glob("payintent_sandbox-*.whl")]
        _run(service / "pip", "install", "-q", "--no-index", "--no-deps", *wheels)
        print(_run(service / "payintent", "--version"), end="")
        environment = _environment(folder)
        with _sandbox(service / "payintent", folder, environment):
            exports = dict(_read_exports(_run(service / "payintent", "env", env=environment)))
            merchant = _make_environment(folder / "merchant")
            origin = "{0.scheme}://{0.netloc}".format(urlsplit(exports["PAYINTENT_URL"]))
            [wheel] = release.glob("payintent_sdk-*.whl")
            _run(merchant / "pip", "install", "-q", f"{origin}/packages/files/{wheel.name}")
            result = _run(merchant / "python", "-I", "-c", _PAY, env={**environment, **exports})
        print(f"paid with the installation's SDK: {result}", end="")
        if not result.endswith(" PAID\n"):
            raise SystemExit("the payment is not PAID")


def _make_environment(folder: Path) -> Path:
    """Create a virtual environment, and return the folder of its programs."""
    _run(sys.executable, "-m", "venv", folder)
    return folder / "bin"


def _environment(folder: Path) -> dict[str, str]:
    variables = {"PORT_BASE": _PORT_BASE, "VAR_DIR": str(folder / "var"), "HOME": str(folder)}
    return {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **variables}


@contextmanager
def _sandbox(program: Path, folder: Path, environment: dict[str, str]) -> Iterator[None]:
    log = folder / "sandbox.log"
    command = [str(program), "dev", "--no-chains"]
    with log.open("w") as output:
        process = subprocess.Popen(  # noqa: S603
            command, cwd=folder, env=environment, stdout=output, stderr=output
        )
        try:
            deadline = time.monotonic() + _START_TIMEOUT_S
            while "ready" not in log.read_text():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"the sandbox did not start:\n{log.read_text()}")
                time.sleep(_POLL_S)
            yield
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def _read_exports(text: str) -> Iterator[tuple[str, str]]:
    """Parse `export NAME=VALUE` lines. Values may be quoted for a shell."""
    for line in text.splitlines():
        name, _, value = line.removeprefix("export ").partition("=")
        yield name, value.strip("'\"")


def _run(*words: object, env: dict[str, str] | None = None) -> str:
    completed = subprocess.run(  # noqa: S603
        [str(word) for word in words], env=env, capture_output=True, text=True, check=False
    )
    if completed.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, words))}\n{completed.stdout}{completed.stderr}")
    return completed.stdout


if __name__ == "__main__":
    verify(Path(sys.argv[1]).resolve())
