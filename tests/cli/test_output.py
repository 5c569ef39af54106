"""Output to a terminal and to a pipe."""

import asyncio
import base64
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest
from typer import Exit

from payintent.accounting.statements_operations import ExportStatement, StatementText
from payintent.cli.common import print_record, print_table
from payintent.cli.results import print_result
from payintent.core.countries import COUNTRIES
from payintent.payment_history.operations import ShowTimeline
from payintent.payment_history.timeline import TimelineEntry, TimelinePage
from payintent.quotes.operations import ExplainQuotes, QuoteExplanation
from payintent.runtime.settings import Settings
from tests.support.terminal import Terminal

pytestmark = pytest.mark.full

_LONG = "https://127.0.0.1/a/path/that/does/not/fit/into/a/table/of/eighty/columns/at/all"


@pytest.fixture
def terminal(settings: Settings) -> Iterator[Terminal]:
    with pytest.MonkeyPatch.context() as patch:
        yield Terminal(settings, patch)


@pytest.fixture
def shop(terminal: Terminal, tmp_path: Any) -> Terminal:
    """A terminal of an installation in which every list has entries."""
    file = tmp_path / "credentials.json"
    file.write_text('{"api_key": "k", "signing_secret": "x"}')
    for words in (
        ("account", "add", "--provider", "simulator", "--base-url", "http://127.0.0.1:9/",
         "--credentials", file, "--name", "main"),
        ("merchant", "create", "--name", "Nimbus Books", "--methods", "all"),
        ("merchant", "create", "--name", "Harbour Tea and other things", "--callback-url", _LONG),
        ("tax", "set", "TH", "0.07"),
        ("fraud", "add", "COUNTRY", "CU"),
        ("fraud", "add", "ADDRESS_VELOCITY", "--count", "5", "--window-s", "60"),
        ("limit", "set", "1", "create", "--per-s", "5"),
        ("operator", "issue", "Ada"),
    ):  # fmt: skip
        assert terminal.run(*words).status == 0, words
    return terminal


_WRONG_TYPE = (
    "Invalid value for 'TYPE': 'X' is not one of 'CRYPTO', 'ONRAMP'; "
    "see payintent restriction add --help"
)
_WRONG_PORT = (
    "Invalid value for '--port': Input should be less than or equal to 65535; "
    "see payintent api --help"
)
_NEGATIVE_PORT = (
    "Invalid value for '--operator-port': Input should be greater than or equal to 0; "
    "see payintent api --help"
)
_WORD_CHARS = 17  # such as VELOCITY_EXCEEDED
_LISTS = [
    ("merchant", "list"),
    ("account", "list"),
    ("method", "list", "1"),
    ("key", "list", "1"),
    ("provider", "list"),
    ("tax", "list"),
    ("restriction", "list"),
    ("fraud", "list"),
    ("limit", "list"),
    ("operator", "list"),
    ("keyring", "show"),
    ("audit", "list"),
]


def test_every_table_fits_the_terminal_without_splitting_words(shop: Terminal) -> None:
    for words in _LISTS:
        whole = shop.run(*words).out.split()
        for columns in (80, 120):
            result = shop.run(*words, columns=columns)
            assert result.status == 0
            assert max(map(len, result.out.splitlines())) <= columns, words
            short = {item for item in whole if len(item) <= _WORD_CHARS}
            assert short <= set(result.out.split()), (words, columns)


def test_a_pipe_receives_complete_values_and_json_contains_all_fields(shop: Terminal) -> None:
    assert _LONG in shop.run("merchant", "list").out
    for words in _LISTS:
        records = shop.run(*words, "--json").json
        assert isinstance(records, list)
        assert records
    [first, _] = shop.run("merchant", "list", "--json").json
    assert first == shop.run("merchant", "show", "1", "--json").json
    assert first["market"] == {"countries": None, "currencies": None}


def test_a_record_is_printed_with_a_line_per_field(shop: Terminal) -> None:
    lines = shop.run("merchant", "show", "1").out.splitlines()
    assert [line.split(None, 1) for line in lines[:2]] == [["id", "1"], ["name", "Nimbus Books"]]
    assert len({line.index(line.split()[-1]) for line in (lines[0], *lines[-2:])}) == 1
    [line] = [item for item in shop.run("merchant", "activation", "1").out.splitlines()
              if item.startswith("activated at")]  # fmt: skip
    assert re.fullmatch(r"activated at +\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", line)


def test_create_prints_exactly_the_documented_json_fields(terminal: Terminal) -> None:
    create = (
        "merchant",
        "create",
        "--name",
        "N",
        "--callback-url",
        "http://127.0.0.1:9/",
        "--json",
    )
    result = terminal.run(*create)
    assert list(json.loads(result.out)) == ["id", "api_key", "callback_secret"]
    assert result.out.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "status", "line"),
    [
        ("merchant show 99", 1, "no merchant 99"),
        ("merchant show 0", 1, "no merchant 0"),
        (f"merchant show {2**64}", 1, f"no merchant {2**64}"),
        ("account show 7", 1, "no account 7"),
        ("tax set TH x", 1, "RATE must be a decimal such as 0.029"),
        ("tax set TH NaN", 1, "rate must be between 0 and 1; 0.07 means 7 %"),
        ("webhooks replay-missed", 1, "specify a merchant, a period or both"),
        ("webhooks replay-missed --since 2026-01-01", 1, "no events to resend"),
        ("payment show pay_x", 1, "no payment 'pay_x'"),
        ("merchant create --name x --methods some", 1, "--methods must be none or all"),
        ("account add --provider simulator --base-url http://x --credentials no.json", 1,
         "cannot read no.json: No such file or directory"),
        ("account change 1 --credentials -", 1, "- must contain a JSON object of strings"),
        ("merchant show", 2, "Missing argument 'merchant_id'; see payintent merchant show --help"),
        ("restriction add X CU", 2, _WRONG_TYPE),
        ("api --port 80800", 2, _WRONG_PORT),
        ("api --operator-port -1", 2, _NEGATIVE_PORT),
        ("nothing", 2, "No such command 'nothing'; see payintent --help"),
    ],
)  # fmt: skip
def test_an_error_is_a_single_line_on_standard_error(
    terminal: Terminal, words: str, status: int, line: str
) -> None:
    result = terminal.run(*words.split())
    assert (result.status, result.out) == (status, "")
    assert result.err == f"payintent: {line}\n"


def test_the_label_translations_of_a_method_can_be_set_and_removed(shop: Terminal) -> None:
    def change(entries: str) -> dict[str, str]:
        result = shop.run("method", "change", "1", "--label-translations", entries, "--json")
        assert result.status == 0, result.err
        return json.loads(result.out)["label_translations"]

    assert change("th:บัตรเครดิต,ar:بطاقة") == {"th": "บัตรเครดิต", "ar": "بطاقة"}
    refused = shop.run("method", "change", "1", "--label-translations", "de:Karte")
    assert (refused.status, refused.out) == (1, "")
    assert "label_translations must be LANGUAGE:LABEL" in refused.err
    assert change("") == {}


def test_a_reason_is_required_outside_the_sandbox(settings: Settings) -> None:
    with pytest.MonkeyPatch.context() as patch:
        terminal = Terminal(settings.model_copy(update={"sandbox": False}), patch)
        terminal.bootstrap()
        result = terminal.run("tax", "set", "TH", "0.07")
        assert (result.status, result.err) == (
            *(1, "payintent: why is required: the audit log needs a reason\n"),
        )
        assert terminal.run("tax", "set", "TH", "0.07", "--why", "ticket 1").status == 0


def test_lock_conflicts_and_invalid_unicode_are_reported(
    shop: Terminal, settings: Settings
) -> None:
    async def while_held() -> Any:
        connection = await asyncpg.connect(settings.database_url)
        async with connection.transaction():
            await connection.execute("SELECT FROM merchant WHERE id = 1 FOR UPDATE")
            result = await asyncio.to_thread(shop.run, "merchant", "profile", "1", "--name", "x")
        await connection.close()
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PAYINTENT_DATABASE_LOCK_TIMEOUT_MS", "100")
        result = asyncio.run(while_held())
    assert result.err == "payintent: a concurrent change is in progress; try again\n"
    result = shop.run("key", "revoke", "a\x00b")
    assert (result.status, result.err) == (1, "payintent: an argument is not valid Unicode\n")


def test_the_old_key_can_be_removed_after_a_rotation(shop: Terminal, settings: Settings) -> None:
    old = settings.keyring.get_secret_value()
    new = "k2:" + base64.b64encode(b"k" * 32).decode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PAYINTENT_KEYRING", f"{new},{old}")
        rotation = shop.run("keyring", "rotate", "--json").json
        assert rotation == {
            "writer": "k2",
            "callback_secrets": 2,
            "provider_accounts": 1,
            "retired": ["test"],
            "payer_values": 0,
        }
        patch.setenv("PAYINTENT_KEYRING", new)
        assert [item["name"] for item in shop.run("keyring", "show", "--json").json] == [
            "k2",
            "test",
        ]
        patch.setenv("PAYINTENT_KEYRING", old)
        result = shop.run("keyring", "show")
        assert (result.status, result.err) == (
            *(1, "payintent: the key ring lacks key 'k2', which is still in use\n"),
        )


def test_groups_and_commands_have_help(terminal: Terminal) -> None:
    root = terminal.run("--help")
    assert root.status == 0
    assert "--show-completion" in root.out
    for words in (("merchant",), ("merchant", "profile"), ("limit", "set"), ("keyring",)):
        result = terminal.run(*words, "--help", columns=80)
        assert result.status == 0
        assert "payintent …" not in result.out
        assert str(2**63 - 1)[:10] not in result.out


def test_a_pdf_is_written_to_a_pipe_and_never_to_a_terminal(
    capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    pdf = b"%PDF-1.4\n\x93\xff"
    exported = StatementText(format="pdf", text=base64.b64encode(pdf).decode())
    operation = ExportStatement(statement_id="stmt_1", format="pdf")
    print_result(operation, exported, as_json=False)
    assert capsysbinary.readouterr().out == pdf
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    with pytest.raises(Exit):
        print_result(operation, exported, as_json=False)
    output = capsysbinary.readouterr()
    assert (output.out, b"redirect the output" in output.err) == (b"", True)


def test_a_timeline_page_is_printed_with_requests_and_responses(
    capsys: pytest.CaptureFixture[str],
) -> None:
    at = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
    created = TimelineEntry(at=at, what="created", id=None, who=None, text="1590 THB", details={})
    details = {"body": '{"type":"payment.paid"}', "answer": "busy,\ncome again"}
    attempt = TimelineEntry(
        at=at, what="attempt", id="01a1", who=None, text="attempt 1", details=details
    )
    page = TimelinePage(entries=[created, attempt], page=1, pages=3)
    print_result(ShowTimeline(payment_id="pay_x"), page, as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "2026-11-21 09:30:00.000Z created     1590 THB",
        "2026-11-21 09:30:00.000Z attempt     01a1 attempt 1",
        '     body: {"type":"payment.paid"}',
        "     response: busy, come again",
        "",
        "page 1 of 3",
    ]
    print_result(ShowTimeline(payment_id="pay_x"), page, as_json=True)
    assert len(json.loads(capsys.readouterr().out)["entries"]) == 2


def test_the_countries_of_a_quote_are_abbreviated_in_text_output(
    capsys: pytest.CaptureFixture[str],
) -> None:
    operation = ExplainQuotes(payment_id="pay_1")
    row = QuoteExplanation(
        method_id=1,
        label="Card",
        provider="fake",
        currency="USD",
        country=None,
        offered=True,
        countries=tuple(COUNTRIES),
        total="7.00",
        code="",
        reason="",
    )
    print_result(operation, [row], as_json=False)
    assert "all countries" in capsys.readouterr().out
    print_result(operation, [row], as_json=True)
    [printed] = json.loads(capsys.readouterr().out)
    assert printed["countries"] == list(COUNTRIES)


@pytest.mark.parametrize("text", ["a [bold]b[/bold] c", "[/x]", "[link=http://x]y", ":key: \\[x]"])
def test_brackets_and_colons_are_printed_unchanged(
    capsys: pytest.CaptureFixture[str], text: str
) -> None:
    print_table([{"payer_uid": text}], ["payer_uid"], as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert [line.rstrip() for line in lines] == ["payer uid", text]


def test_values_cannot_control_the_terminal_or_add_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    row = {"payer_uid": "x\x1b[2J\x9b1m\nstatus  PAID", "list": ["\u202eab"], "map": {"a": "b\rc"}}
    print_record(row, as_json=False)
    print_table([row], list(row), as_json=False)
    output = capsys.readouterr().out
    assert output.replace("\n", "").isprintable()
    assert len(output.splitlines()) == 5


@pytest.mark.parametrize(
    ("device", "message"),
    [("", ""), ("/dev/full", "payintent: the output is incomplete: No space left on device\n")],
)
def test_output_that_cannot_be_written_ends_the_command_without_a_traceback(
    device: str, message: str
) -> None:
    if device:
        output = os.open(device, os.O_WRONLY)
    else:
        reader, output = os.pipe()
        os.close(reader)
    command = [sys.executable, "-m", "payintent", "--version"]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    result = subprocess.run(
        command, stdout=output, stderr=subprocess.PIPE, env=env, text=True, check=False
    )
    os.close(output)
    assert (result.returncode, result.stderr) == (1, message)
