"""Third-party programs that the tests run: Java's HTTP client, curl, nginx and others."""

import shutil
from pathlib import Path

import pytest

#: The Debian package of each program.
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
    """Find a program. A test fails if its program is missing."""
    path = find(name)
    if not path:
        text = f"there is no {name}: run `make tools`, or install {PACKAGES[name]}"
        pytest.fail(text, pytrace=False)
    return path


def java() -> str:
    """Find a Java that can run source files, which requires a compiler next to it."""
    return str(Path(tool("javac")).resolve().with_name("java"))


def missing_packages() -> list[str]:
    """List the Debian packages of the programs that are not installed."""
    return [package for name, package in PACKAGES.items() if not find(name)]


def find(name: str) -> str | None:
    """Find a program on PATH or in the administrators' folders."""
    beside = (str(Path(folder, name)) for folder in _ALSO_IN)
    return shutil.which(name) or next((path for path in beside if shutil.which(path)), None)
