"""Check the browser scripts and style sheets: `python -m tools.web.check`.

The compiler checks types; ESLint reports features that a supported browser lacks.
"""

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from payintent_sandbox.chains.anvil_binary import npm
from tools.web.install import FOLDER

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
#: The folders with the scripts of the checkout, the portal, the console and the documentation.
SERVED = (
    "checkout/sdk",
    "checkout/static",
    "console/static",
    "portal/static",
    "http/docs/templates",
)
_OF_OTHERS = ("--ignore-pattern", "**/*.min.*", "--ignore-pattern", "**/*.d.ts")


def command(program: str, *arguments: str) -> list[str]:
    """Return the command of an installed program."""
    node, *_ = npm()
    return [node, str(FOLDER / "node_modules" / program), *arguments]


def lint(paths: Iterable[Path], folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Report features that a supported browser lacks. `package.json` lists the browsers."""
    config = ("--config", str(HERE / "eslint.config.mjs"))
    return subprocess.run(  # noqa: S603
        command("eslint/bin/eslint.js", *config, *_OF_OTHERS, *map(str, paths)),
        cwd=folder,
        env=os.environ | {"PAYINTENT_WEB_TOOLS": str(FOLDER)},
        capture_output=True,
        text=True,
        check=False,
    )


def main() -> None:
    """Run both checks on all served scripts and style sheets."""
    types = subprocess.run(  # noqa: S603
        command("typescript/bin/tsc", "-p", str(HERE / "tsconfig.json")), check=False
    )
    linted = lint(ROOT / "payintent" / name for name in SERVED)
    print(linted.stdout + linted.stderr, end="")  # noqa: T201
    sys.exit(types.returncode or linted.returncode)


if __name__ == "__main__":
    main()
