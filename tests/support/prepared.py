"""What tests need beside the developers' packages, and the command that installs it.

`make test` installs everything first. A folder that is run alone is told what is missing.
"""

import re
from collections.abc import Callable, Iterable
from functools import cache
from importlib.metadata import distributions
from pathlib import Path

import pytest

from tests.support import browser
from tools import locked
from tools.openapi import install as openapi
from tools.web import install as web

COMMAND = "make test-tools"


@cache
def openapi_tools() -> bool:
    """Tell whether the tools of the contract and of the libraries are installed, as locked."""
    return (
        _are_locked(openapi.FOLDER, openapi.HERE)
        and _has_packages(openapi.CLIENTS, openapi.LOCKS / "clients.txt")
        and _has_packages(openapi.MCP, openapi.LOCKS / "mcp.txt")
    )


@cache
def web_tools() -> bool:
    """Tell whether the tools of the browser's part are installed, as locked."""
    return _are_locked(web.FOLDER, web.HERE)


@cache
def chromium() -> bool:
    """Tell whether there is a browser."""
    return browser.find_light() is not None


Need = Callable[[], bool]

#: What the tests of a folder or a file need.
NEEDS: dict[str, Need] = {
    "clients": openapi_tools,
    "sdks": openapi_tools,
    "gateways/test_ecpay_official.py": openapi_tools,
    "tools/test_browser_check.py": web_tools,
    "web/test_html.py": web_tools,
    "web/test_sdk_files.py": web_tools,
}
#: What the tests that have a fixture need.
FIXTURES: dict[str, Need] = {"browser": chromium}
_NAMES = {
    openapi_tools: "the tools of the libraries (.venv/openapi, .venv/clients, .venv/mcp)",
    web_tools: "the tools of the browser's part (.venv/web)",
    chromium: "Chromium",
}


def missing(path: str, fixtures: Iterable[str] = ()) -> str | None:
    """Say what a test lacks and which command installs it; None if it lacks nothing."""
    needs = [
        need for prefix, need in NEEDS.items() if path == prefix or path.startswith(f"{prefix}/")
    ]
    needs += [FIXTURES[name] for name in FIXTURES if name in fixtures]
    absent = [_NAMES[need] for need in needs if not need()]
    if not absent:
        return None
    return f"missing, or older than its lock: {', '.join(absent)}. Run `{COMMAND}` first."


def stop_if_nothing_can_run(items: list[pytest.Item], root: Path) -> dict[str, str]:
    """Give what is missing by test; `UsageError` if every test lacks something."""
    told = {
        item.nodeid: text
        for item in items
        if (text := missing(item.path.relative_to(root).as_posix(), _fixtures(item)))
    }
    if items and len(told) == len(items) and not hasattr(items[0].config, "workerinput"):
        raise pytest.UsageError("\n".join(sorted(set(told.values()))))
    return told


def _fixtures(item: pytest.Item) -> Iterable[str]:
    return getattr(item, "fixturenames", ())


def _are_locked(folder: Path, source: Path) -> bool:
    copy = folder / "package-lock.json"
    lock = source / "package-lock.json"
    return copy.is_file() and copy.read_bytes() == lock.read_bytes()


def _has_packages(environment: Path, lock: Path) -> bool:
    folders = environment.glob("lib/python3*/site-packages")
    installed = {
        (_normal(one.metadata["Name"]), one.version)
        for one in distributions(path=[str(folder) for folder in folders])
    }
    return {(_normal(one.name), one.version) for one in locked.read(lock)} <= installed


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
