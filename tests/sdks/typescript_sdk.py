"""Build and install the TypeScript SDK, and run programs that use it."""

import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from payintent_sandbox.chains.anvil_binary import npm, npm_environment
from tests.sdks.python_sdk import HERE
from tools.openapi.check import CONTRACT as DOCUMENT
from tools.openapi.check import TYPESCRIPT_CLIENT, command
from tools.openapi.pack_typescript import pack

_TIMEOUT_S = 300  # enough for the compiler on a busy machine
TSC = "typescript/bin/tsc"


@cache
def install_sdk() -> Path:
    """Build and install the SDK once per process; return the folder with the programs."""
    folder = Path(mkdtemp(prefix="payintent-sdk-"))
    package = pack(folder)
    (folder / "package.json").write_text('{"private": true, "type": "module"}')
    install = ("install", "--offline", "--no-audit", "--no-fund", "--ignore-scripts")
    run(*npm(), *install, f"./{package.name}", folder=folder)
    for program in HERE.glob("*.mts"):
        shutil.copy(program, folder)
    return folder


@cache
def compile_programs() -> str:
    """In strict mode, compile the programs and the comparison with the contract."""
    folder = install_sdk()
    shutil.copy(HERE / "tsconfig.json", folder)
    run(*command(TYPESCRIPT_CLIENT, str(DOCUMENT), "-o", "schema.d.ts"), folder=folder)
    return run(*command(TSC, "-p", "tsconfig.json"), folder=folder)


def run_program(name: str, *arguments: str, text: str | None = None, **environment: str) -> str:
    """Run a program from this folder with the installed SDK; return its output."""
    return run(npm()[0], name, *arguments, folder=install_sdk(), text=text, **environment)


def run(*command: str, folder: Path, text: str | None = None, **environment: str) -> str:
    """Run a program; return its output. If it fails, the assertion contains the output."""
    result = subprocess.run(
        command, cwd=folder, env=npm_environment() | environment, input=text, capture_output=True,
        text=True, timeout=_TIMEOUT_S, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout
