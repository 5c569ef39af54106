"""A virtual environment with Patroni in the drill's folder: pinned, and every file hashed."""

import hashlib
import subprocess
import sys
from pathlib import Path

from drills.ha.programs import ROOT

_LOCK = ROOT / "requirements" / "ha.txt"


def patroni_program(var_dir: Path) -> Path:
    """Install what `requirements/ha.txt` names, unless it is there; gives Patroni's program."""
    folder = var_dir / "patroni"
    stamp, lock = folder / "installed", hashlib.sha256(_LOCK.read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text() != lock:
        print(f"installing Patroni into {folder}", flush=True)
        uv = [sys.executable, "-m", "uv"]
        _run([*uv, "venv", "--quiet", "--clear", str(folder)])
        # What builds two of its packages is held to the same lock.
        held = ["--require-hashes", "--build-constraints", str(_LOCK), "-r", str(_LOCK)]
        python = str(folder / "bin" / "python")
        _run([*uv, "pip", "install", "--quiet", "--python", python, *held])
        stamp.write_text(lock)
    return folder / "bin" / "patroni"


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True)
