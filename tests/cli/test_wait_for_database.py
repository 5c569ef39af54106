"""A command names the database that it is waiting for before it gives up."""

from functools import partial

import pytest

from payintent.cli import common, doctor
from payintent.db import availability
from payintent.runtime.settings import Settings
from payintent.service import open_service
from tests.support.ports import free_port
from tests.support.terminal import Terminal

pytestmark = pytest.mark.full

_WAIT_S = 2.1  # enough for several attempts, even if the first attempt takes a second


@pytest.mark.parametrize("password", ["s3/cr3t", "s3@cr3t", "12?s3=cr3t", "s3\u2100cr3t"])
def test_an_ambiguous_database_url_is_not_printed(
    password: str, capsys: pytest.CaptureFixture[str]
) -> None:
    common.report_unavailable_database(f"postgresql://me:{password}@db.example:5432/payintent")
    assert (
        capsys.readouterr().err
        == "payintent: waiting for the database, whose address is not readable …\n"
    )


@pytest.mark.parametrize("command", ["migrate --wait-s 2.1", "merchant list", "doctor"])
def test_a_command_names_the_database_that_it_waits_for(
    any_settings: Settings, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    terminal = Terminal(any_settings, monkeypatch)
    hosts = f"127.0.0.1:{free_port()}"
    monkeypatch.setenv("DATABASE_URL", f"postgresql://payintent:hunter2@{hosts}/payintent")
    monkeypatch.setattr(availability, "NOTICE_AFTER_S", 0.0)
    monkeypatch.setattr(common, "open_service", partial(open_service, wait_s=_WAIT_S))
    monkeypatch.setattr(doctor, "COMMAND_WAIT_S", _WAIT_S)
    result = terminal.run(*command.split())
    assert result.status == 1
    assert f"payintent: waiting for the database at {hosts} …\n" in result.err
    assert "the database cannot be reached: connection refused" in result.out + result.err
    assert "hunter2" not in result.out + result.err
