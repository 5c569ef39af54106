"""The versions that this installation reports: product, API and commit."""

from functools import cache
from importlib import resources
from pathlib import Path

#: Version of the product (PEP 440).
VERSION = "1.0.0rc1"
#: Version of the merchant API (spec section 9).
API_VERSION = "0.9.9"
UNKNOWN = "unknown"
_BUILD_FILE = "commit.txt"  # tools/build_hook.py adds it to wheels and source distributions
_GIT_FOLDER = Path(__file__).parents[2] / ".git"


@cache
def read_commit() -> str:
    """Return the commit of the source, as 40 hex digits, or "unknown".

    A built package contains the commit; in a checkout, it is read from the `.git` folder.
    """
    build_file = resources.files("payintent") / _BUILD_FILE
    if build_file.is_file():
        return build_file.read_text(encoding="ascii").strip()
    try:
        return read_checked_out_commit(_GIT_FOLDER)
    except OSError:
        return UNKNOWN


def read_checked_out_commit(git_folder: Path) -> str:
    """Return the commit to which a repository's HEAD refers, or "unknown". Raises `OSError`."""
    head = (git_folder / "HEAD").read_text(encoding="ascii").strip()
    reference = head.removeprefix("ref: ")
    if reference == head:
        return head
    if (file := git_folder / reference).is_file():
        return file.read_text(encoding="ascii").strip()
    for line in (git_folder / "packed-refs").read_text(encoding="utf-8").splitlines():
        commit, _, name = line.partition(" ")
        if name == reference:
            return commit
    return UNKNOWN


def describe_version() -> str:
    """Return all versions in one line, for `--version` and logs."""
    return f"payintent {VERSION} (API {API_VERSION}, commit {read_commit()[:12]})"
