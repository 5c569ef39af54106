"""Build the Medusa plugin: `python -m tools.medusa FOLDER` writes its npm package to the folder.

Without a folder, it only installs Medusa, which is required to build and test the plugin. The
lock file in `plugins/medusa/shop` pins Medusa's packages, which are installed in the environment's
`medusa` folder. Install scripts are disabled.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from payintent_sandbox.chains.anvil_binary import npm, npm_environment
from tools.openapi.pack_typescript import pack as pack_library
from tools.web.install import install

PLUGIN = Path(__file__).resolve().parents[1] / "plugins" / "medusa"
SHOP = PLUGIN / "shop"
FOLDER = Path(sys.prefix) / "medusa"
_MODULES = FOLDER / "node_modules"
_TIMEOUT_S = 600.0
_PACK = ("pack", "--offline", "--ignore-scripts", "--pack-destination")


def build(folder: Path) -> Path:
    """Build the plugin's package into a folder, and return its file. Raises `SystemExit`."""
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="payintent-medusa-") as scratch:
        add(pack_library(Path(scratch)))
        project = Path(scratch) / "plugin"
        shutil.copytree(PLUGIN, project, ignore=shutil.ignore_patterns("shop"))
        compile_project(project)
        packed = run([*npm(), *_PACK, str(folder.resolve())], project)
    return folder / packed.split()[-1]


def add(package: Path) -> None:
    """Unpack a package into Medusa's packages, replacing any earlier version."""
    with TemporaryDirectory(prefix="payintent-package-") as scratch:
        shutil.unpack_archive(package, scratch, filter="data")
        target = _MODULES / re.split(r"-(?=\d)", package.name)[0]
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(Path(scratch) / "package", target)


def compile_project(project: Path) -> None:
    """Compile a project with Medusa's packages. Raises `SystemExit`."""
    (project / "node_modules").symlink_to(_MODULES)
    run([npm()[0], str(_MODULES / "typescript" / "bin" / "tsc"), "-p", "."], project)


def run(command: list[str], folder: Path, environment: Mapping[str, str] | None = None) -> str:
    """Run a program and return its output. Raises `SystemExit` if it fails."""
    process = subprocess.run(  # noqa: S603
        command,
        cwd=folder,
        env=npm_environment() | dict(environment or {}),
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{process.stdout}{process.stderr}")
    return process.stdout


if __name__ == "__main__":
    if sys.argv[1:]:
        print(build(Path(sys.argv[1])))  # noqa: T201
    else:
        install(SHOP, FOLDER)
