"""Programs of other people that the tests run: Java's own HTTP client, curl, nginx and others."""

import shutil
import sys
from pathlib import Path

import pytest

#: By program, the Debian package that brings it.
PACKAGES = {
    "javac": "openjdk-17-jdk-headless",
    "curl": "curl",
    "nginx": "nginx",
    "openssl": "openssl",
    "php": "php-cli",
    "prometheus": "prometheus",
    "promtool": "prometheus",
}
_ALSO_IN = ("/usr/sbin", "/usr/local/sbin", "/sbin")


def tool(name: str) -> str:
    """Find a program; a test that needs one fails without it."""
    found = _find(name)
    if not found:
        text = f"there is no {name}: run `make test-tools`, or install {PACKAGES[name]}"
        pytest.fail(text, pytrace=False)
    return found


def java() -> str:
    """Find the Java that can run a source file: the one beside a compiler."""
    return str(Path(tool("javac")).resolve().with_name("java"))


def _find(name: str) -> str | None:
    beside = (str(Path(folder, name)) for folder in _ALSO_IN)
    return shutil.which(name) or next((path for path in beside if shutil.which(path)), None)


if __name__ == "__main__":
    missing = [package for name, package in PACKAGES.items() if not _find(name)]
    print(*missing)
    sys.exit(1 if missing else 0)
