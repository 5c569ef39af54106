"""Build everything that is published: `python -m tools.release FOLDER`."""

import subprocess
import sys
from pathlib import Path

from tools import medusa, sbom
from tools.openapi import pack_typescript
from tools.prepare import prepare
from tools.web import pack

ROOT = Path(__file__).resolve().parents[1]
#: Python projects, and what is built of each.
PROJECTS = {
    ROOT: ("wheel", "sdist"),
    ROOT / "payintent_sandbox": ("wheel",),
    **{ROOT / "sdks" / name: ("wheel", "sdist") for name in ("python", "cli", "mcp")},
}


def build(folder: Path) -> None:
    """Build wheels, source distributions, npm packages and the bill of materials."""
    folder.mkdir(parents=True, exist_ok=True)
    for project, kinds in PROJECTS.items():
        targets = [word for kind in kinds for word in ("-t", kind)]
        command = [sys.executable, "-m", "hatchling", "build", *targets, "-d", str(folder)]
        subprocess.run(command, cwd=project, check=True)  # noqa: S603
    prepare("openapi", "medusa")
    for package in (pack.pack(folder), pack_typescript.pack(folder), medusa.build(folder)):
        print(package)
    sbom.write(folder)


if __name__ == "__main__":
    build(Path(sys.argv[1]).resolve())
