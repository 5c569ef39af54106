"""Installs what the shops of `examples/` need: `python -m tools.examples`.

Each has a folder of its own in the environment's `examples`: a virtual environment for Python, the
packages of its lock for Node.js. No script of a package is run.
"""

import shutil
import sys
from pathlib import Path

from tools.openapi.install import install_python
from tools.web.install import install

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
FOLDER = Path(sys.prefix) / "examples"
PYTHON = ("django", "fastapi", "flask")
NODE = ("express", "nextjs")


def main() -> None:
    """Install what the locks say, and nothing where that is there."""
    FOLDER.mkdir(exist_ok=True)
    for name in PYTHON:
        install_python(EXAMPLES / name / "requirements.txt", FOLDER / name)
    for name in NODE:
        install(EXAMPLES / name, FOLDER / name)
        # What was made of it before is of another lock.
        shutil.rmtree(FOLDER / name / ".next", ignore_errors=True)


if __name__ == "__main__":
    main()
