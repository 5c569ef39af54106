"""The folder for test servers' data, in memory, so that tests do not wait for a disk."""

import os
from pathlib import Path


def memory_folder() -> str | None:
    """Return a folder in memory if the system has one."""
    shared = Path("/dev/shm")  # noqa: S108 - Linux's own folder in memory
    return str(shared) if shared.is_dir() and os.access(shared, os.W_OK) else None
