"""Run the command in a prepared process with a separate database."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from payintent.runtime.settings import Settings
from tests.support import processes
from tests.support.timeouts import PATIENCE_S


@dataclass(frozen=True)
class RunResult:
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.status == 0, self.err
        return json.loads(self.out)

    @property
    def line(self) -> str:
        """The only line on standard error, which explains the failure."""
        assert (self.status, self.out) == (1, ""), (self.status, self.out, self.err)
        [line] = self.err.splitlines()
        assert line.startswith("payintent: ")
        return line


_WAITING = "payintent: waiting for the database at "
Run = Callable[..., RunResult]


@pytest.fixture
def run(settings: Settings, tmp_path: Path) -> Run:
    """Run `payintent`. Keyword arguments set environment variables, and None removes them."""
    env: dict[str, str | None] = {
        "PATH": os.environ["PATH"],
        "DATABASE_URL": settings.database_url,
        "PAYINTENT_PEPPER": settings.pepper.get_secret_value(),
        "PAYINTENT_KEYRING": settings.keyring.get_secret_value(),
        "PAYINTENT_SANDBOX": "true",
        "PYTHONWARNINGS": "error",
    }

    def run_command(*arguments: object, **changes: str | None) -> RunResult:
        result = processes.run(
            *("payintent", *(str(argument) for argument in arguments)),
            env={name: value for name, value in (env | changes).items() if value is not None},
            folder=tmp_path,
            timeout=PATIENCE_S,
        )
        # Ignore the notice, because connecting may be slow if the machine is busy.
        lines = [line for line in result.stderr.splitlines(keepends=True) if _WAITING not in line]
        return RunResult(result.returncode, result.stdout, "".join(lines))

    return run_command
