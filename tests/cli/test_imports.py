"""The packages that a process imports, counted because seconds depend on the machine."""

import os
import subprocess
import sys

import pytest

from payintent.runtime.settings import Settings

pytestmark = pytest.mark.full

_SERVERS = {"aiohttp", "starlette", "uvicorn", "jinja2"}
_CLIENTS = {"asyncpg", "pydantic", "pydantic_core", "cryptography"}
_CHAINS = {"eth_account", "eth_abi", "eth_utils"}
_RARE = {"httpx", "joserfc", "Crypto", "pycparser"}  # of 2C2P's refunds and of addresses on chains
_UNUSED = {"markdown_it", "structlog", "rich"}  # it writes no line of a log, and no table
#: Of a process that serves, until it is asked for: passkeys, pages of documentation, sign-in by
#: OpenID Connect and 2C2P's keys, statements and pictures as files.
_SELDOM = {"fido2", "markdown_it", "yaml", "joserfc", "cryptography.x509", "reportlab", "PIL"}
_PAGES = {"starlette", "uvicorn", "jinja2", "segno"}  # of what answers requests
#: Of the service, and of no command: what settles, watches chains, sells and compares.
_SERVICE = {
    "payintent.onchain.routes",
    "payintent.onchain.watch_loop",
    "payintent.payments.screen",
    "payintent.payment_sessions.inquire",
    "payintent.payment_sessions.select_quote",
    "payintent.refunds.send",
    "payintent.reconciliation.runs",
}
_OURS_MAX = 250  # modules of ours that a command which reads imports; 245 in November 2026
_HEAVY = _SERVERS | _CLIENTS | _CHAINS | _RARE | {"structlog", "prometheus_client", "msgspec"}
_SPOKEN = """
import sys
from payintent.cli import main
try:
    main()
except SystemExit:
    print(*sys.modules, file=sys.stderr)
"""


def _modules_of(imported: str) -> set[str]:
    code = f"import sys, {imported}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def _loaded_by(module: str) -> set[str]:
    return _modules_of(module).intersection(_SERVERS | {"typer"})


def _loaded_when_typed(*words: str, **variables: str) -> set[str]:
    """Run a command line to its end; return the modules and packages that it imported."""
    done = subprocess.run(
        [sys.executable, "-c", _SPOKEN, *words],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout, done.stderr
    return set(done.stderr.splitlines()[-1].split())


def test_commands_do_not_import_server_libraries() -> None:
    assert _loaded_by("payintent.cli.operation_commands") == {"typer"}


def test_a_read_command_imports_no_server_or_rarely_used_library(
    settings: Settings,
) -> None:
    """With the gateways' adapters, whose refunds and chains need the omitted modules."""
    loaded = _loaded_when_typed(
        *("merchant", "list", "--json"),
        DATABASE_URL=settings.database_url,
        PAYINTENT_PEPPER=settings.pepper.get_secret_value(),
        PAYINTENT_KEYRING=settings.keyring.get_secret_value(),
        PAYINTENT_SANDBOX="true",
    )
    assert "payintent.merchants.operations" in loaded
    assert "payintent.chains.operations" not in loaded, "only its own subject's operations"
    assert loaded & (_SERVERS | _CHAINS | _RARE | _UNUSED | _SERVICE) == set()
    assert len([name for name in loaded if name.startswith("payintent.")]) <= _OURS_MAX


def test_operations_do_not_import_the_command_line_library() -> None:
    assert _loaded_by("payintent.operations") == set()


def test_the_version_option_imports_only_the_command_line_library() -> None:
    loaded = _loaded_when_typed("--version")
    assert "typer" in loaded
    assert loaded & (_HEAVY | {"rich"}) == set()


def test_help_is_printed_without_heavy_imports() -> None:
    loaded = _loaded_when_typed("--help")
    assert "payintent_sandbox.commands" in loaded, "another distribution's commands are in it too"
    assert loaded & _HEAVY == set()


def test_shell_completion_of_the_first_word_needs_no_heavy_imports() -> None:
    typed = {"COMP_WORDS": "payintent mer", "COMP_CWORD": "1"}
    loaded = _loaded_when_typed(_PAYINTENT_COMPLETE="complete_bash", **typed)
    assert loaded & _HEAVY == set()


@pytest.mark.parametrize(
    ("process", "used", "unused"),
    [
        (
            "payintent.app",
            {"payments.screen", "payment_sessions.select_quote", "onchain.routes"},
            set[str](),
        ),
        (
            "payintent.worker",
            {
                "payment_sessions.inquire",
                "refunds.send",
                "onchain.watch_loop",
                "reconciliation.runs",
            },
            _PAGES,
        ),
    ],
)
def test_a_server_imports_common_modules_before_forking_and_no_rare_modules(
    process: str, used: set[str], unused: set[str]
) -> None:
    """Common modules are imported early, and rare modules only when they are needed."""
    loaded = _modules_of(process)
    assert {f"payintent.{name}" for name in used} <= loaded
    assert "aiohttp" in loaded
    assert loaded & (unused | _SELDOM) == set()


def test_the_slow_signature_library_is_not_imported_at_startup() -> None:
    starting = "payintent_sandbox.dev, payintent_sandbox.demo.tokens, tests.support.onchain"
    assert "py_ecc" not in _modules_of(starting)
