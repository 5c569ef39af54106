"""Generate clients from the contract, once per process of the test run."""

import json
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from payintent_sandbox.chains.anvil_binary import npm
from tools.openapi.check import CONTRACT, TYPESCRIPT_CLIENT, command, environment
from tools.openapi.install import CLIENTS, FOLDER

HERE = Path(__file__).parent
PYTHON = str(CLIENTS / "bin" / "python")
TIMEOUT_S = 300  # a compiler on a busy machine


def run(*words: str, folder: Path, timeout_s: int = TIMEOUT_S) -> str:
    """Run a program to its end. If it fails, its output is the assertion message."""
    ended = subprocess.run(
        words, cwd=folder, env=environment(), capture_output=True, text=True, timeout=timeout_s,
        check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def node() -> str:
    """Return the Node.js of the sandbox's packages."""
    return npm()[0]


@cache
def python_client() -> Path:
    """Generate the Python client next to the program that uses it."""
    folder = Path(mkdtemp(prefix="payintent-client-"))
    (folder / "config.yml").write_text("post_hooks: []\n")
    shutil.copy(HERE / "use_python.py", folder)
    run(
        *(str(CLIENTS / "bin" / "openapi-python-client"), "generate", "--path", str(CONTRACT)),
        *("--meta", "none", "--output-path", "payintent_client", "--config", "config.yml"),
        folder=folder,
    )
    checked = {
        "include": ["use_python.py", "payintent_client"],
        "typeCheckingMode": "standard",
        "strict": ["use_python.py"],
        "reportMissingTypeStubs": False,
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(checked))
    return folder


@cache
def typescript_client() -> Path:
    """Generate the TypeScript types next to the program that uses them."""
    folder = Path(mkdtemp(prefix="payintent-client-"))
    for name in ("use_typescript.mts", "globals.d.ts", "tsconfig.json"):
        shutil.copy(HERE / name, folder)
    (folder / "node_modules").symlink_to(FOLDER / "node_modules")
    run(*command(TYPESCRIPT_CLIENT, str(CONTRACT), "-o", "schema.d.ts"), folder=folder)
    return folder


def basedpyright() -> str:
    """Return the type checker of this environment."""
    return str(Path(sys.executable).parent / "basedpyright")
