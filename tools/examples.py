"""Install the dependencies of the shops in `examples/`: `python -m tools.examples`.

Each shop has a folder in the environment's `examples`: a virtual environment for Python, or the
locked packages for Node.js. Install scripts of npm packages are disabled.
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
    """Install the locked packages of all shops."""
    FOLDER.mkdir(exist_ok=True)
    for name in PYTHON:
        install_python(EXAMPLES / name / "requirements.txt", FOLDER / name)
    for name in NODE:
        install(EXAMPLES / name, FOLDER / name)
        # An existing folder may have been built with different packages.
        shutil.rmtree(FOLDER / name / ".next", ignore_errors=True)


if __name__ == "__main__":
    main()
