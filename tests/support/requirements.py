"""The tests' requirements besides the development packages, and the command to install them.

`make test` installs everything first. A run of a single folder reports missing requirements.
"""

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import pytest

from tests.support import browser
from tools.prepare import has_examples, has_openapi_tools, has_web_tools

COMMAND = "make tools"


openapi_tools = cache(has_openapi_tools)
web_tools = cache(has_web_tools)
examples = cache(has_examples)


@cache
def chromium() -> bool:
    """Return whether a browser is installed."""
    return browser.find_light() is not None


Need = Callable[[], bool]

#: The requirements of the tests in a folder or file.
NEEDS: dict[str, Need] = {
    "clients": openapi_tools,
    "sdks": openapi_tools,
    "sdks/test_deposits.py": web_tools,
    "sdks/test_examples_graded.py": examples,
    "gateways/test_ecpay_official.py": openapi_tools,
    "tools/test_browser_check.py": web_tools,
    "web/test_html.py": web_tools,
    "web/test_sdk_files.py": web_tools,
}
#: The requirements of the tests with a fixture.
FIXTURES: dict[str, Need] = {"browser": chromium}
_NAMES = {
    openapi_tools: "the API contract and client tools (.venv/openapi, .venv/clients, .venv/mcp)",
    web_tools: "the browser script tools (.venv/web)",
    examples: "the example shops' packages (.venv/examples)",
    chromium: "Chromium",
}


def missing(path: str, fixtures: Iterable[str] = ()) -> str | None:
    """Describe a test's missing requirements and their installation; None if none are missing."""
    needs = [
        need for prefix, need in NEEDS.items() if path == prefix or path.startswith(f"{prefix}/")
    ]
    needs += [FIXTURES[name] for name in FIXTURES if name in fixtures]
    absent = [_NAMES[need] for need in needs if not need()]
    if not absent:
        return None
    return f"missing, or older than its lock: {', '.join(absent)}. Run `{COMMAND}` first."


def stop_if_nothing_can_run(items: list[pytest.Item], root: Path) -> dict[str, str]:
    """Return the missing requirements by test. Raises `UsageError` if no test can run."""
    reasons = {
        item.nodeid: text
        for item in items
        if (text := missing(item.path.relative_to(root).as_posix(), _fixtures(item)))
    }
    if items and len(reasons) == len(items) and not hasattr(items[0].config, "workerinput"):
        raise pytest.UsageError("\n".join(sorted(set(reasons.values()))))
    return reasons


def _fixtures(item: pytest.Item) -> Iterable[str]:
    return getattr(item, "fixturenames", ())
