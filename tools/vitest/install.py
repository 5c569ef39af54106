"""Installs vitest for `make vitest`: `python -m tools.vitest.install`, by the sandbox's npm."""

import sys
from pathlib import Path

from tools.web.install import install

HERE = Path(__file__).parent
FOLDER = Path(sys.prefix) / "vitest"


if __name__ == "__main__":
    install(HERE, FOLDER)
