"""Write requirements/*.txt: every package pinned and hashed, no index address."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILES = {
    "run.txt": [],
    "sandbox.txt": ["--extra", "sandbox"],
    "dev.txt": ["--extra", "sandbox", "--group", "dev"],
}
COMPILE = [
    *(sys.executable, "-m", "uv", "pip", "compile", "pyproject.toml", "--universal"),
    *("--python-version", "3.11", "--generate-hashes", "--no-header", "--quiet", "--upgrade"),
]


def main() -> None:
    """Resolve each set; the larger ones contain the smaller at the same versions."""
    for name, extra in FILES.items():
        target = f"requirements/{name}"
        subprocess.run([*COMPILE, *extra, "-o", target], cwd=ROOT, check=True)  # noqa: S603


if __name__ == "__main__":
    main()
