"""The packages that a process imports. Unlike times, they do not depend on the machine."""

import os
import subprocess
import sys

import pytest

from payintent.runtime.settings import Settings

pytestmark = pytest.mark.full

_SERVERS = {"aiohttp", "starlette", "uvicorn", "jinja2"}
_CLIENTS = {"asyncpg", "pydantic", "pydantic_core", "cryptography"}
_CHAINS = {"eth_account", "eth_abi", "eth_utils"}
_RARE = {"httpx", "joserfc", "Crypto", "pycparser"}  # used for 2C2P refunds and chain addresses
_UNUSED = {"markdown_it", "structlog", "rich"}  # a command with JSON output writes no log or table
#: Libraries that a server imports on first use: for passkeys, documentation pages, OpenID Connect,
#: 2C2P keys, statements and images.
_LAZY = {"fido2", "markdown_it", "yaml", "joserfc", "cryptography.x509", "reportlab", "PIL"}
_PAGES = {"starlette", "uvicorn", "jinja2", "segno"}  # used only to answer requests
#: Modules of the service that commands do not need.
_SERVICE = {
    "payintent.onchain.routes",
    "payintent.onchain.watch_loop",
    "payintent.payments.screen",
    "payintent.payment_sessions.inquire",
    "payintent.payment_sessions.select_quote",
    "payintent.refunds.send",
    "payintent.reconciliation.runs",
}
_OURS_MAX = 250  # modules that a read command imports from this package; 245 in November 2026
_HEAVY = _SERVERS | _CLIENTS | _CHAINS | _RARE | {"structlog", "prometheus_client", "msgspec"}
_PRINT_MODULES = """
import sys
from payintent.cli import main
try:
    main()
except SystemExit:
    print(*sys.modules, file=sys.stderr)
"""


def _modules_of(imported: str) -> set[str]:
    code = f"import sys, {imported}; print(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return set(result.stdout.split())


def _server_modules_of(module: str) -> set[str]:
    return _modules_of(module).intersection(_SERVERS | {"typer"})


def _modules_of_command(*words: str, **variables: str) -> set[str]:
    """Run a command, and return the modules that it imported."""
    result = subprocess.run(
        [sys.executable, "-c", _PRINT_MODULES, *words],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout, result.stderr
    return set(result.stderr.splitlines()[-1].split())


def test_commands_do_not_import_server_libraries() -> None:
    assert _server_modules_of("payintent.cli.operation_commands") == {"typer"}


def test_a_read_command_imports_no_server_or_rarely_used_library(
    settings: Settings,
) -> None:
    """The gateway adapters are loaded without the modules for refunds and chains."""
    loaded = _modules_of_command(
        *("merchant", "list", "--json"),
        DATABASE_URL=settings.database_url,
        PAYINTENT_PEPPER=settings.pepper.get_secret_value(),
        PAYINTENT_KEYRING=settings.keyring.get_secret_value(),
        PAYINTENT_SANDBOX="true",
    )
    assert "payintent.merchants.operations" in loaded
    assert "payintent.chains.operations" not in loaded, (
        "only the operations of the command's group are imported"
    )
    assert loaded & (_SERVERS | _CHAINS | _RARE | _UNUSED | _SERVICE) == set()
    assert len([name for name in loaded if name.startswith("payintent.")]) <= _OURS_MAX


def test_operations_do_not_import_the_command_line_library() -> None:
    assert _server_modules_of("payintent.operations") == set()


def test_the_version_option_imports_only_the_command_line_library() -> None:
    loaded = _modules_of_command("--version")
    assert "typer" in loaded
    assert loaded & (_HEAVY | {"rich"}) == set()


def test_help_is_printed_without_heavy_imports() -> None:
    loaded = _modules_of_command("--help")
    assert "payintent_sandbox.commands" in loaded, (
        "help includes the commands of other distributions"
    )
    assert loaded & _HEAVY == set()


def test_shell_completion_of_the_first_word_needs_no_heavy_imports() -> None:
    typed = {"COMP_WORDS": "payintent mer", "COMP_CWORD": "1"}
    loaded = _modules_of_command(_PAYINTENT_COMPLETE="complete_bash", **typed)
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
    """Rare modules are imported when they are needed."""
    loaded = _modules_of(process)
    assert {f"payintent.{name}" for name in used} <= loaded
    assert "aiohttp" in loaded
    assert loaded & (unused | _LAZY) == set()


def test_the_slow_signature_library_is_not_imported_at_startup() -> None:
    starting = "payintent_sandbox.dev, payintent_sandbox.demo.tokens, tests.support.onchain"
    assert "py_ecc" not in _modules_of(starting)
