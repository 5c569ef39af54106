"""Check the API contract with Redocly and Spectral: `python -m tools.openapi.check`."""

import os
import subprocess
import sys
from pathlib import Path

from payintent_sandbox.chains.anvil_binary import npm
from tools.openapi.install import FOLDER, HERE, ROOT

CONTRACT = ROOT / "docs" / "openapi.yaml"
REDOCLY = "@redocly/cli/bin/cli.js"
SPECTRAL = "@stoplight/spectral-cli/dist/index.js"
TYPESCRIPT_CLIENT = "openapi-typescript/bin/cli.js"


def command(program: str, *arguments: str) -> list[str]:
    """Return the command that runs an installed program."""
    node, *_ = npm()
    return [node, str(FOLDER / "node_modules" / program), *arguments]


def checks(contract: Path) -> list[list[str]]:
    """Return the commands that check a contract. Each exits with 0 if there are no findings."""
    document = str(contract)
    return [
        command(REDOCLY, "lint", document, "--config", str(HERE / "redocly.yaml")),
        command(
            *(SPECTRAL, "lint", document, "--ruleset", str(HERE / "spectral.yaml")),
            *("--fail-severity", "hint"),
        ),
    ]


def environment() -> dict[str, str]:
    """Return the environment of the checks, with telemetry and update notices disabled."""
    quiet = {"REDOCLY_TELEMETRY": "off", "REDOCLY_SUPPRESS_UPDATE_NOTICE": "true"}
    return {**os.environ, **quiet}


def main() -> None:
    """Run both checks; exit with 1 if either has findings."""
    ended = [
        subprocess.run(check, env=environment(), check=False).returncode  # noqa: S603
        for check in checks(CONTRACT)
    ]
    sys.exit(int(any(ended)))


if __name__ == "__main__":
    main()
