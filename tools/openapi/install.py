"""Install the contract checkers and client generators: `python -m tools.openapi.install`.

The npm packages are installed into the environment's `openapi` folder. The Python client generator
is installed into a separate environment, `clients`, because it needs an older typer than the
service. The dependencies of the agent server are installed into `mcp`.
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
    """Install a lock into a separate environment with the current environment's pip."""
    if not (into / "bin" / "python").exists():
        venv.create(into, symlinks=True)
    command = [
        *(sys.executable, "-m", "pip", "--python", str(into / "bin" / "python"), "install"),
        *("-q", "--disable-pip-version-check", "--require-hashes", "-r", str(lock)),
    ]
    subprocess.run(command, check=True)  # noqa: S603


def main() -> None:
    """Install the locked packages of all three folders."""
    install(HERE, FOLDER)
    install_python(LOCKS / "clients.txt", CLIENTS)
    install_python(LOCKS / "mcp.txt", MCP)


if __name__ == "__main__":
    main()
