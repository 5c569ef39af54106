"""Find the tests' Chromium on PATH, or a Chromium that Playwright has already downloaded.

Most tests run in Chromium's headless shell, which has the same engine without the browser's windows
and needs half of the processor time.
"""

import os
import shutil
from pathlib import Path

_SHELL = "chromium-headless-shell"
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_DOWNLOADED = "chromium-*/chrome-linux*/chrome"
#: Pages share a process, because a process is slow to start and tests use one page at a time. The
#: scripts are so short that two of the engine's compilers would cost more time than they save.
THRIFTY = ["--renderer-process-limit=1", "--js-flags=--no-maglev --no-opt"]
MISSING = "there is no browser: run `make tools`, or install chromium"


def find() -> str | None:
    """Find a complete Chromium that runs on this machine, or return None."""
    for name in _NAMES:
        if path := shutil.which(name):
            return path
    folder_setting = os.environ.get("PLAYWRIGHT_BROWSERS_PATH")
    folder = Path(folder_setting) if folder_setting else Path.home() / ".cache" / "ms-playwright"
    return next((str(path) for path in sorted(folder.glob(_DOWNLOADED), reverse=True)), None)


def find_light() -> str | None:
    """Find the headless shell or, if it is missing, a complete Chromium."""
    return shutil.which(_SHELL) or find()


def has_shell() -> bool:
    """Return whether the headless shell is installed."""
    return shutil.which(_SHELL) is not None
