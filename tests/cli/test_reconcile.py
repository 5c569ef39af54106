"""`payintent reconcile` in scripts: its exit status and its output in a pipe."""

import asyncio
import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from payintent.gateways.ecpay.settlement_file import COLUMNS
from payintent.reconciliation.file import HEADER
from payintent.runtime.settings import Settings
from payintent.service import open_service
from tests.support.fakes import FakeGateway, captured
from tests.support.terminal import CommandResult, Terminal
from tests.support.world import make_world

pytestmark = pytest.mark.full

_AT = "2026-11-21T08:00:00Z"
_PERIOD = ("--from", "2026-01-01T00:00:00", "--to", "2100-01-01")
_LINE = f"payment,cap-{{:040}},,1590.00,THB,{_AT}"


@pytest.fixture
def terminal(settings: Settings) -> Iterator[Terminal]:
    """A terminal of an installation with a single capture, `cap-1`, of 1590.00 THB."""
    asyncio.run(_pay(settings))
    with pytest.MonkeyPatch.context() as patch:
        yield Terminal(settings, patch)


@pytest.fixture
def ecpay_terminal(settings: Settings, terminal: Terminal) -> Terminal:
    """The same terminal, but with the capture at ECPay and in its currency."""

    async def change() -> None:
        connection = await asyncpg.connect(settings.database_url)
        await connection.execute("UPDATE provider_account SET provider = 'ecpay'")
        await connection.execute("UPDATE capture SET currency = 'TWD', reference = 'T1'")
        await connection.close()

    asyncio.run(change())
    return terminal


async def _pay(settings: Settings) -> None:
    gateway = FakeGateway()
    service = await open_service(settings, {"fake": gateway})
    world = await make_world(service, gateway)
    payment = await world.create()
    session = (await world.select(payment)).session
    await world.report(payment, session.id, captured(159_000))
    await service.close()


def _write(folder: Path, *lines: str) -> Path:
    path = folder / "file.csv"
    path.write_text("\n".join([",".join(HEADER), *lines, ""]))
    return path


def _reconcile(terminal: Terminal, path: Path, *more: str) -> CommandResult:
    return terminal.run("reconcile", "--provider", "fake", "--file", path, *_PERIOD, *more)


def _cases(terminal: Terminal) -> int:
    return len(terminal.run("case", "list", "--json").json)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "big5"])
def test_a_settlement_file_is_read_in_the_gateways_own_layout(
    ecpay_terminal: Terminal, tmp_path: Path, encoding: str
) -> None:
    """The worker reads the same file: `tests/reconciliation/test_ecpay_file.py`."""
    row = "1,12341,777777,{},2026/11/21 16:00:00,2026/11/21 16:00:00,1590,-44,1546"
    path = tmp_path / "settled.csv"
    command = ("reconcile", "--provider", "ecpay", "--file", path, *_PERIOD)
    for order, status, differences in (
        ("T1", 0, []),
        ("T2", 1, [("extra", "T2"), ("missing", "T1")]),
    ):
        lines = [",".join(COLUMNS), row.format(order), "合計,1546", ""]
        path.write_text("\r\n".join(lines), encoding=encoding)
        result = ecpay_terminal.run(*command)
        assert (result.status, result.err) == (status, "")
        for difference, reference in differences:
            assert any(
                line.startswith(f"ecpay payment {reference}: {difference}, ")
                for line in result.out.splitlines()
            )
    path.write_text("nothing\n", encoding=encoding)
    refused = ecpay_terminal.run(*command)
    assert refused.status == 2
    assert refused.err.startswith("payintent: line 1: the header must be type,reference,")
    assert refused.err.endswith("or use one of the gateway's layouts\n")


def test_the_exit_status_reports_whether_there_are_differences(
    terminal: Terminal, tmp_path: Path
) -> None:
    same = _reconcile(terminal, _write(tmp_path, f"payment,cap-1,,1590.00,THB,{_AT}"))
    assert (same.status, same.err) == (0, "")
    assert same.out.splitlines()[1].split() == ["payment", "1", "1", "0", "0", "0", "0"]
    different_file = _write(tmp_path, f"payment,cap-1,,90.00,THB,{_AT}")
    compared = _reconcile(terminal, different_file)
    assert (compared.status, compared.err, _cases(terminal)) == (1, "", 0)
    different = "fake payment cap-1: different, 90.00 THB there, 1590.00 THB here"
    assert compared.out.splitlines()[-1] == different
    applied = _reconcile(terminal, different_file, "--apply")
    assert (applied.status, _cases(terminal)) == (1, 1)
    assert applied.out.splitlines()[-1] == "cases opened: 1, inquiries scheduled: 0"
    as_json = _reconcile(terminal, different_file, "--apply", "--json")
    assert (as_json.status, json.loads(as_json.out)["opened"]) == (1, 0)


def test_payouts_are_only_listed_until_they_are_applied(terminal: Terminal, tmp_path: Path) -> None:
    path = _write(tmp_path, f"payment,cap-1,,1590.00,THB,{_AT}", f"payout,po_1,,9.00,THB,{_AT}")
    for more in ((), ("--apply", "--dry-run")):
        compared = _reconcile(terminal, path, *more)
        assert compared.status == 0
        assert compared.out.splitlines()[3:5] == [
            "payout po_1: 9.00 THB, would be recorded",
            "payouts: 1 would be recorded, 0 already recorded, 0 already reversed, 0 different",
        ]
        assert terminal.run("gateway-payout", "list", "--json").json == []
    applied = _reconcile(terminal, path, "--apply")
    assert applied.out.splitlines()[3] == "payout po_1: 9.00 THB, recorded"
    again = _reconcile(terminal, path, "--apply")
    assert (again.status, again.out.splitlines()[3]) == (
        *(0, "payouts: 0 recorded, 1 already recorded, 0 already reversed, 0 different"),
    )
    [payout] = terminal.run("gateway-payout", "list", "--json").json
    assert (payout["reference"], payout["fee_minor"]) == ("po_1", "0")


def test_an_invalid_file_or_option_results_in_status_2_without_output(
    terminal: Terminal, settings: Settings, tmp_path: Path
) -> None:
    invalid = _reconcile(terminal, _write(tmp_path, "x", "y"), "--apply")
    assert (invalid.status, invalid.out) == (2, "")
    assert invalid.err.splitlines() == [
        f"payintent: line {number}: the line must have 6 columns, not 1" for number in (2, 3)
    ]
    refused = _reconcile(terminal, _write(tmp_path), "--account", "99")
    assert (refused.status, refused.out) == (2, "")
    assert refused.err == "payintent: fake has no account 99\n"
    with pytest.MonkeyPatch.context() as patch:
        outside = Terminal(settings.model_copy(update={"sandbox": False}), patch)
        outside.bootstrap()
        unexplained = _reconcile(outside, _write(tmp_path), "--apply")
        assert (unexplained.status, "why is required" in unexplained.err) == (2, True)
    assert _cases(terminal) == 0


def test_progress_is_shown_at_a_terminal_and_not_in_a_pipe(
    terminal: Terminal, settings: Settings, tmp_path: Path
) -> None:
    path = _write(tmp_path, *(_LINE.format(number) for number in range(15_000)))
    piped = _reconcile(terminal, path)
    assert (piped.status, piped.err) == (1, "")
    assert piped.out.splitlines()[-1] == "and 14901 more"
    output = _at_a_terminal(settings, path)
    assert "comparing" in output
    assert "100%" in output


def _at_a_terminal(settings: Settings, path: Path) -> str:
    """Run the command with a terminal as standard error. Return the output there."""
    ours, theirs = pty.openpty()
    command = [Path(sys.executable).with_name("payintent"), "reconcile", "--provider", "fake"]
    with subprocess.Popen(
        [*command, "--file", path, *_PERIOD],
        env={
            "PATH": os.environ["PATH"],
            "TERM": "xterm",
            "DATABASE_URL": settings.database_url,
            "PAYINTENT_PEPPER": settings.pepper.get_secret_value(),
            "PAYINTENT_KEYRING": settings.keyring.get_secret_value(),
            "PAYINTENT_SANDBOX": "true",
        },
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    ) as running:
        os.close(theirs)
        output = b"".join(iter(lambda: _read_terminal(ours), b""))
        os.close(ours)
        assert running.wait(60) == 1
    return output.decode()


def _read_terminal(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # raised when the other end of the terminal is closed
        return b""
