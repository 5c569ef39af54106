"""A worker that stops due to a defect logs it, as an API process does."""

import pytest
from structlog.testing import capture_logs

from payintent.cli import work
from payintent.runtime.settings import Settings


async def _with_a_defect(*_: object) -> None:
    raise ZeroDivisionError("a defect")


def test_an_internal_error_in_a_worker_is_logged_and_sets_the_exit_status(
    any_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "run_worker", _with_a_defect)
    monkeypatch.setattr(work, "load_logging", lambda: None)  # it would end the capture
    with capture_logs() as lines, pytest.raises(SystemExit) as ended:
        work.run_workers(any_settings, None, 1)
    assert ended.value.code == 1
    assert [(line["event"], line["log_level"]) for line in lines] == [("worker_failed", "error")]
    assert lines[0]["exc_info"]
