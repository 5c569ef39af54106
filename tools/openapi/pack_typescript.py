"""Build and pack the TypeScript SDK: `python -m tools.openapi.pack_typescript FOLDER`."""

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from payintent_sandbox.chains.anvil_binary import npm, npm_environment
from tools.openapi.check import command

PROJECT = Path(__file__).parents[2] / "sdks" / "typescript"
_TIMEOUT_S = 300.0
_PACK = ("pack", "--offline", "--ignore-scripts", "--pack-destination")


def pack(folder: Path) -> Path:
    """Build the package into a folder and return its file. Raises `SystemExit` with the error."""
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="payintent-sdk-") as scratch:
        project = Path(scratch) / "typescript"
        shutil.copytree(PROJECT, project)
        _run(*command("typescript/bin/tsc", "-p", "."), folder=project)
        packed = _run(*npm(), *_PACK, str(folder.resolve()), folder=project)
    return folder / packed.split()[-1]


def _run(*words: str, folder: Path) -> str:
    process = subprocess.run(  # noqa: S603
        words,
        cwd=folder,
        env=npm_environment(),
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if process.returncode != 0:
        raise SystemExit(f"the package cannot be built: {process.stdout}{process.stderr}")
    return process.stdout


if __name__ == "__main__":
    print(pack(Path(sys.argv[1])))  # noqa: T201
