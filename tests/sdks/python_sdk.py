"""Build our Python packages, and run programs that use them."""

import os
import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from tools.openapi.install import CLIENTS

ROOT = Path(__file__).parents[2]
PROJECT = ROOT / "sdks/python"
MCP_PROJECT = ROOT / "sdks/mcp"
CLI_PROJECT = ROOT / "sdks/cli"
HERE = Path(__file__).parent
PYTHON = str(CLIENTS / "bin" / "python")


@cache
def unpack_package(project: Path = PROJECT) -> Path:
    """Build and unpack a wheel once per process; return the folder to import from."""
    folder = Path(mkdtemp(prefix="payintent-sdk-"))
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=project, check=True, capture_output=True,
    )  # fmt: skip
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as wheel_file:
        wheel_file.extractall(folder / "site")
    return folder / "site"


def run_program(name: str, *arguments: str, text: str | None = None, **environment: str) -> str:
    """Run a program in this folder with the installed SDK; return its output."""
    path = {"PYTHONPATH": str(unpack_package())}
    result = subprocess.run(
        [PYTHON, str(HERE / name), *arguments],
        env=os.environ | path | {"PYTHONWARNINGS": "error"} | environment,
        cwd="/", input=text, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout
