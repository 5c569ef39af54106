"""Run commands in this process, because a process for each command would take too long."""

import contextlib
import io
import json
import sys
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import pytest

from payintent import cli
from payintent.db import availability
from payintent.gateways import packages
from payintent.runtime.settings import Settings
from tests.support.timeouts import PATIENCE_S

#: Variables of the tests, which `doctor` would report as unknown settings.
TEST_VARIABLES = ("TESTS_POSTGRES_URL", "TESTS_WORLD")


@cache
def _entry_points(group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Find a path's entry points once, because this Python has many packages to search."""
    del path
    return tuple(entry_points(group=group))


@dataclass(frozen=True)
class CommandResult:
    """A command's output and exit status."""

    status: int
    out: str
    err: str
    raw: bytes = b""  # binary output

    @property
    def json(self) -> Any:
        assert self.status == 0, self.err
        return json.loads(self.out)


class _Screen(io.StringIO):
    """Standard output, which may be a terminal."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self.buffer = io.BytesIO()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


class _Keyboard(io.StringIO):
    """Standard input with a person's answers."""

    def isatty(self) -> bool:
        return True


class Terminal:
    """Runs commands with a test's settings. Call it outside a running event loop."""

    def __init__(self, settings: Settings, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        patch.delenv("PAYINTENT_OPERATOR_TOKEN", raising=False)
        patch.setenv("DATABASE_URL", settings.database_url)
        patch.setenv("PAYINTENT_PEPPER", settings.pepper.get_secret_value())
        patch.setenv("PAYINTENT_KEYRING", settings.keyring.get_secret_value())
        patch.setenv("PAYINTENT_SANDBOX", str(settings.sandbox).lower())
        patch.setenv("PAYINTENT_GATEWAY_ORIGINS", settings.gateway_origins)
        # On a busy machine, connecting may take as long as with an unreachable database.
        patch.setattr(availability, "NOTICE_AFTER_S", PATIENCE_S)
        patch.setattr(
            packages, "entry_points", lambda *, group: _entry_points(group, tuple(sys.path))
        )
        # Configured loggers are cached, and would outlive this test's streams.
        patch.setattr("payintent.cli.common.configure_logging", lambda _: None)

    def set_endpoints(self, settings: Settings) -> None:
        """Read chains through the endpoints in these settings."""
        for slug, urls in settings.endpoints.items():
            self._patch.setenv(f"PAYINTENT_RPC_{slug.upper()}", ",".join(urls))
        self._patch.setenv(
            "PAYINTENT_CHAIN_ANY_ENDPOINTS", str(settings.chain_any_endpoints).lower()
        )

    def set_mail_server(self, host: str) -> None:
        """Send mail through this server, or disable mail if it is empty."""
        self._patch.setenv("PAYINTENT_SMTP_HOST", host)
        self._patch.setenv("PAYINTENT_SMTP_FROM", "payments@pay.example.com")

    def become(self, token: str | None) -> None:
        """Act with an operator's token, or without a token."""
        if token is None:
            self._patch.delenv("PAYINTENT_OPERATOR_TOKEN", raising=False)
        else:
            self._patch.setenv("PAYINTENT_OPERATOR_TOKEN", token)

    def bootstrap(self) -> tuple[str, str]:
        """Issue the first two tokens, for the admins Ada and Alan, and act as Ada."""
        issue = ("operator", "issue")
        more = ("--role", "admin", "--why", "the first two", "--json")
        ada, alan = (self.run(*issue, name, *more).json["token"] for name in ("Ada", "Alan"))
        self.become(ada)
        return ada, alan

    def run_approved(
        self, tokens: tuple[str, str], *words: object, stdin: bytes = b""
    ) -> "CommandResult":
        """Propose with the first token, approve with the second, and return the last output."""
        self.become(tokens[0])
        waiting = self.run(*words, "--json", stdin=stdin)
        assert waiting.status == 3, waiting
        assert waiting.err == "payintent: the operation needs approval by a second operator\n"
        self.become(tokens[1])
        approval_id = json.loads(waiting.out)["id"]
        approved = self.run("approval", "approve", approval_id, "--why", "agreed", "--json")
        self.become(tokens[0])
        return approved

    def run(
        self,
        *words: object,
        stdin: bytes = b"",
        columns: int | None = None,
        typed: str | None = None,
    ) -> CommandResult:
        """Run `payintent` with these arguments, in a terminal with `columns` or into a pipe.

        With `typed`, a person at the terminal enters this text.
        """
        out, err = _Screen(terminal=columns is not None), _Screen(terminal=columns is not None)
        keyboard = io.TextIOWrapper(io.BytesIO(stdin)) if typed is None else _Keyboard(typed)
        with self._patch.context() as patch:
            patch.setattr(sys, "argv", ["payintent", *(str(word) for word in words)])
            patch.setattr(sys, "stdin", keyboard)
            patch.setenv("TERM", "dumb")
            for name in TEST_VARIABLES:
                patch.delenv(name, raising=False)
            patch.setenv("COLUMNS", str(columns or 80))
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                status = _status()
        return CommandResult(status, out.getvalue(), err.getvalue(), out.buffer.getvalue())


def _status() -> int:
    try:
        cli.main()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    return 0
