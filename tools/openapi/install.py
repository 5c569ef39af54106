"""Installs what checks the contract and makes clients of it: `python -m tools.openapi.install`.

The npm packages go to the environment's `openapi` folder. The generator of Python clients goes to
an environment of its own, `clients`, for it needs an older typer than the service. What the server
for agents needs goes to `mcp`.
"""

import subprocess
import sys
import venv
from pathlib import Path

from tools.web.install import install

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
FOLDER = Path(sys.prefix) / "openapi"
CLIENTS = Path(sys.prefix) / "clients"
MCP = Path(sys.prefix) / "mcp"
CLIENTS_LONG = Path(sys.prefix) / "clients-long"
LOCKS = ROOT / "requirements"


def install_python(lock: Path, into: Path) -> None:
    """Install a lock into an environment of its own, by the pip of this one."""
    if not (into / "bin" / "python").exists():
        venv.create(into, symlinks=True)
    command = [
        *(sys.executable, "-m", "pip", "--python", str(into / "bin" / "python"), "install"),
        *("-q", "--disable-pip-version-check", "--require-hashes", "-r", str(lock)),
    ]
    subprocess.run(command, check=True)  # noqa: S603


def main() -> None:
    """Install what the locks say, and nothing where that is there."""
    install(HERE, FOLDER)
    install_python(LOCKS / "clients.txt", CLIENTS)
    install_python(LOCKS / "mcp.txt", MCP)


if __name__ == "__main__":
    main()
