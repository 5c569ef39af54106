"""Build the Python SDKs from a source checkout. The sandbox serves them at `/packages/`."""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

_SDKS = Path(__file__).parents[1] / "sdks"
_NAMES = ("python", "cli", "mcp")
_SOURCES = {".py", ".toml", ".md"}


def find_packages() -> str:
    """Return the folder in `PAYINTENT_PACKAGES_DIR`; build the packages if this is not set."""
    return os.environ.get("PAYINTENT_PACKAGES_DIR") or build_packages()


def build_packages() -> str:
    """Return the folder of the SDKs' wheels, which are rebuilt if their sources have changed.

    All sandboxes of a virtual environment share the folder. Return "" if the environment is
    read-only, or if this is not a source checkout, because an installed release contains its
    packages.
    """
    if not _SDKS.is_dir():
        return ""
    folder = Path(sys.prefix) / "packages"
    try:
        folder.mkdir(exist_ok=True)
        for name in _NAMES:
            _build(_SDKS / name, folder)
    except OSError as error:
        print(f"cannot build the SDK packages: {error}", flush=True)
        return ""
    return str(folder)


def _build(project: Path, folder: Path) -> None:
    sources = (file for file in project.rglob("*") if file.suffix in _SOURCES)
    changed_at = max(file.stat().st_mtime for file in sources)
    record = folder / f".{project.name}"  # its timestamp is the time of the build
    if record.exists() and record.stat().st_mtime > changed_at:
        return
    with TemporaryDirectory(dir=folder) as scratch:
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", scratch]
        process = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
        if process.returncode != 0:
            print(f"cannot build the package in {project}:\n{process.stderr}", flush=True)
            return
        [wheel] = Path(scratch).glob("*.whl")
        wheel.replace(folder / wheel.name)  # atomic, because a running sandbox may serve it
        for other_version in folder.glob(f"{wheel.name.partition('-')[0]}-*.whl"):
            if other_version.name != wheel.name:
                other_version.unlink(missing_ok=True)
    record.touch()
