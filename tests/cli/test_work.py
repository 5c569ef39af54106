"""A worker that cannot run ends with a reason."""

import socket

import pytest
import typer
from structlog.testing import capture_logs

from payintent.cli import work
from payintent.runtime.settings import Settings


async def _fail(*_: object) -> None:
    raise ZeroDivisionError("a defect")


def test_an_internal_error_in_a_worker_is_logged_and_sets_the_exit_status(
    any_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "run_worker", _fail)
    monkeypatch.setattr(work, "load_logging", lambda: None)  # loading would end the log capture
    with capture_logs() as lines, pytest.raises(SystemExit) as ended:
        work.run_workers(any_settings, None, 1)
    assert ended.value.code == 1
    assert [(line["event"], line["log_level"]) for line in lines] == [("worker_failed", "error")]
    assert lines[0]["exc_info"]


def test_a_metrics_port_in_use_is_reported(
    any_settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(typer.Exit):
            work.run_workers(any_settings, ("127.0.0.1", port), 1)
    reason = f"payintent: cannot listen on 127.0.0.1 port {port}: address already in use\n"
    assert capsys.readouterr().err == reason
