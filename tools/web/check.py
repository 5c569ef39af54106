"""Checks the types of the browser's scripts: `python -m tools.web.check`; it writes nothing."""

import subprocess
import sys
from pathlib import Path

from payintent_sandbox.chains.anvil_binary import npm
from tools.web.install import FOLDER

HERE = Path(__file__).parent


def command(program: str, *arguments: str) -> list[str]:
    """Give the command of one of the installed programs."""
    node, *_ = npm()
    return [node, str(FOLDER / "node_modules" / program), *arguments]


def main() -> None:
    """Run the compiler over all scripts; it writes nothing."""
    checked = command("typescript/bin/tsc", "-p", str(HERE / "tsconfig.json"))
    sys.exit(subprocess.run(checked, check=False).returncode)  # noqa: S603


if __name__ == "__main__":
    main()
