"""Add the source tree and the `payintent` command to the current virtual environment."""

import shutil
import sys
import sysconfig
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
COMMAND = f"""#!{sys.executable}
from payintent.cli import main

main()
"""
PROJECTS = (ROOT / "pyproject.toml", ROOT / "payintent_sandbox" / "pyproject.toml")


def main() -> None:
    """Write a path file, the command and the metadata, like an editable install without a build."""
    libraries = Path(sysconfig.get_path("purelib"))
    (libraries / "payintent.pth").write_text(f"{ROOT}\n")
    for project in PROJECTS:
        _write_metadata(libraries, tomllib.loads(project.read_text())["project"])
    command = Path(sysconfig.get_path("scripts"), "payintent")
    command.write_text(COMMAND)
    command.chmod(0o755)


def _write_metadata(libraries: Path, project: dict[str, Any]) -> None:
    """Write the metadata for `importlib.metadata`: name, version and entry points."""
    name, version = project["name"], project["version"]
    stem = name.replace("-", "_")
    for outdated in libraries.glob(f"{stem}-*.dist-info"):
        shutil.rmtree(outdated)
    folder = libraries / f"{stem}-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    groups = project.get("entry-points", {})
    lines = [
        line
        for group, points in groups.items()
        for line in (f"[{group}]", *(f"{key} = {value}" for key, value in points.items()))
    ]
    (folder / "entry_points.txt").write_text("\n".join([*lines, ""]))


main()
