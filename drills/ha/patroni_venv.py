"""Installs pinned versions of Patroni and its dependencies, and verifies their hashes."""

import hashlib
import subprocess
import sys
from pathlib import Path

from drills.ha.programs import ROOT

_LOCK = ROOT / "requirements" / "ha.txt"


def patroni_program(var_dir: Path) -> Path:
    """Install `requirements/ha.txt` if it has changed, and return the path of Patroni."""
    folder = var_dir / "patroni"
    stamp, lock = folder / "installed", hashlib.sha256(_LOCK.read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text() != lock:
        print(f"installing Patroni into {folder}", flush=True)
        uv = [sys.executable, "-m", "uv"]
        _run([*uv, "venv", "--quiet", "--clear", str(folder)])
        # The lock also contains the build requirements of two packages.
        requirements = ["--require-hashes", "--build-constraints", str(_LOCK), "-r", str(_LOCK)]
        python = str(folder / "bin" / "python")
        _run([*uv, "pip", "install", "--quiet", "--python", python, *requirements])
        stamp.write_text(lock)
    return folder / "bin" / "patroni"


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True)
