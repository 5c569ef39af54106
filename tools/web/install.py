"""Install the browser code checkers with the sandbox's npm: `python -m tools.web.install`.

The lock pins each package by digest, and install scripts are disabled.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from payintent_sandbox.chains.anvil_binary import AnvilError, npm, npm_environment

HERE = Path(__file__).parent
FOLDER = Path(sys.prefix) / "web"
TIMEOUT_S = 600.0
ATTEMPTS_MAX = 3


def install(locked: Path, folder: Path) -> None:
    """Install into `folder` the packages that the npm lock in `locked` pins."""
    folder.mkdir(exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copyfile(locked / name, folder / name)
    try:
        command = [*npm(), "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    except AnvilError as error:
        raise SystemExit(str(error)) from None
    for attempt in range(1, ATTEMPTS_MAX + 1):
        process = subprocess.run(  # noqa: S603
            command,
            cwd=folder,
            env=npm_environment(),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        if process.returncode == 0:
            return
        if attempt == ATTEMPTS_MAX:
            raise SystemExit(f"the packages in {locked} cannot be installed: {process.stderr}")


def main() -> None:
    """Install the browser code checkers."""
    install(HERE, FOLDER)


if __name__ == "__main__":
    main()
