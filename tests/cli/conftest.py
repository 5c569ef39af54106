"""The command in a separate warm-started process, with a separate database."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from payintent.runtime.settings import Settings
from tests.support import processes
from tests.support.patience import PATIENCE_S


@dataclass(frozen=True)
class Ran:
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
Run = Callable[..., Ran]


@pytest.fixture
def run(settings: Settings, tmp_path: Path) -> Run:
    """Run `payintent`. Keyword arguments change its environment; None removes a variable."""
    env: dict[str, str | None] = {
        "PATH": os.environ["PATH"],
        "DATABASE_URL": settings.database_url,
        "PAYINTENT_PEPPER": settings.pepper.get_secret_value(),
        "PAYINTENT_KEYRING": settings.keyring.get_secret_value(),
        "PAYINTENT_SANDBOX": "true",
        "PYTHONWARNINGS": "error",
    }

    def ran(*arguments: object, **changes: str | None) -> Ran:
        done = processes.run(
            *("payintent", *(str(argument) for argument in arguments)),
            env={name: value for name, value in (env | changes).items() if value is not None},
            folder=tmp_path,
            timeout=PATIENCE_S,
        )
        # A busy machine may take as long to connect as a database that is away.
        said = [line for line in done.stderr.splitlines(keepends=True) if _WAITING not in line]
        return Ran(done.returncode, done.stdout, "".join(said))

    return ran
