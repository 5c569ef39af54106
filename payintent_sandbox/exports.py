"""`payintent env`: print the running sandbox's settings as shell exports."""

import json
import os
import shlex
import sys
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from payintent_sandbox.ports import API_PORT

_TIMEOUT_S = 5.0


class NoSandboxError(Exception):
    """No sandbox is running in this folder. The message explains how to start it."""


def print_exports() -> int:
    """Print an export for each setting of the sandbox in `VAR_DIR`; return the exit status."""
    var_dir = Path(os.environ.get("VAR_DIR", "var")).resolve()
    try:
        settings = read_settings(var_dir)
    except NoSandboxError as error:
        print(f"payintent env: {error}", file=sys.stderr)
        return 1
    for name, value in settings.items():
        print(f"export {name}={shlex.quote(value)}")
    return 0


def read_settings(var_dir: Path) -> dict[str, str]:
    """Return the integration settings for the first merchant's test mode.

    Raises `NoSandboxError`.
    """
    try:
        description = json.loads((var_dir / "dev.json").read_text())
    except OSError as error:
        raise NoSandboxError(f"{error.filename}: {error.strerror}; run `make dev`") from None
    url = str(description["api_url"]).removesuffix("/v1")
    if not _answers(f"{url}/healthz"):
        raise NoSandboxError(
            f"the sandbox in {var_dir} does not respond at {url}; run `make dev` to start it"
        )
    port = urlsplit(url).port
    test_side = description["merchants"][0]["test"]
    settings = {
        "PAYINTENT_URL": url,
        "PAYINTENT_API_KEY": str(test_side["api_key"]),
        "PAYINTENT_WEBHOOK_SECRET": str(test_side["callback_secret"]),
        # Commands such as `payintent payment list` use these variables to find the sandbox.
        "VAR_DIR": str(var_dir),
    }
    return settings | ({} if port == API_PORT else {"PORT_BASE": str(port)})


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S):  # noqa: S310 - our own address
            return True
    except OSError:
        return False
