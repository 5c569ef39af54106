"""Where the tests' Chromium comes from: PATH, else what Playwright has downloaded before.

Most tests run in Chromium's headless shell: the same engine without the browser's own windows,
for half of the processor's time.
"""

import os
import shutil
from pathlib import Path

_SHELL = "chromium-headless-shell"
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_DOWNLOADED = "chromium-*/chrome-linux*/chrome"
#: Pages share one process, which is slow to start: tests look at one page at a time. Their scripts
#: run too briefly to be worth two of the engine's compilers, which take more time than they save.
THRIFTY = ["--renderer-process-limit=1", "--js-flags=--no-maglev --no-opt"]
MISSING = "there is no browser: run `make tools`, or install chromium"


def find() -> str | None:
    """Find a whole Chromium that runs here; None where there is none."""
    for name in _NAMES:
        if path := shutil.which(name):
            return path
    told = os.environ.get("PLAYWRIGHT_BROWSERS_PATH")
    folder = Path(told) if told else Path.home() / ".cache" / "ms-playwright"
    return next((str(path) for path in sorted(folder.glob(_DOWNLOADED), reverse=True)), None)


def find_light() -> str | None:
    """Find the headless shell; where there is none, a whole Chromium."""
    return shutil.which(_SHELL) or find()


def has_shell() -> bool:
    """Tell whether the headless shell is installed."""
    return shutil.which(_SHELL) is not None
