"""The folder into which `python -m tools.prepare vitest` installs vitest."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
FOLDER = Path(sys.prefix) / "vitest"
