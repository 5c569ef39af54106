"""Programs of other people that the tests run: Java's own HTTP client, curl, nginx and others."""

import shutil
from pathlib import Path

import pytest

#: By program, the Debian package that brings it.
PACKAGES = {
    "javac": "openjdk-17-jdk-headless",
    "curl": "curl",
    "haproxy": "haproxy",
    "nginx": "nginx",
    "openssl": "openssl",
    "php": "php-cli",
    "prometheus": "prometheus",
    "promtool": "prometheus",
}
_ALSO_IN = ("/usr/sbin", "/usr/local/sbin", "/sbin")


def tool(name: str) -> str:
    """Find a program; a test that needs one fails without it."""
    found = find(name)
    if not found:
        text = f"there is no {name}: run `make tools`, or install {PACKAGES[name]}"
        pytest.fail(text, pytrace=False)
    return found


def java() -> str:
    """Find the Java that can run a source file: the one beside a compiler."""
    return str(Path(tool("javac")).resolve().with_name("java"))


def missing_packages() -> list[str]:
    """List the Debian packages of the programs that are not installed."""
    return [package for name, package in PACKAGES.items() if not find(name)]


def find(name: str) -> str | None:
    """Find a program on PATH or in the folders of administrators."""
    beside = (str(Path(folder, name)) for folder in _ALSO_IN)
    return shutil.which(name) or next((path for path in beside if shutil.which(path)), None)
