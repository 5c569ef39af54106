"""Destructive commands ask for confirmation; bulk commands have a dry run and show progress."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from payintent.operations import OPERATIONS
from payintent.operators.operation import ChangeOperation
from payintent.reconciliation.file import HEADER
from payintent.runtime.settings import Settings
from payintent.webhooks.operations import BATCH
from tests.support.terminal import Terminal

pytestmark = pytest.mark.full

#: Changes that can be undone, that only add data, or that have their own confirmation.
_HARMLESS = {
    "payout.record",
    "gateway-payout.record",
    "reconciliation.retry",
    *("merchant.create", "merchant.profile", "merchant.set-callback-url", "merchant.request"),
    *("merchant.set-refund-threshold", "merchant.set-deposit-tolerance"),
    *("merchant.apply", "merchant.validate", "merchant.activate", "merchant.resume"),
    *("key.issue", "merchant.invite", "operator.issue", "operator.set-role", "operator.extend"),
    "operator.unblock",
    *("account.add", "account.change", "account.enable", "method.add", "method.change"),
    *("method.enable", "provider.enable", "provider.rename", "tax.set", "restriction.add"),
    *("restriction.lift", "fraud.add", "limit.set", "chain.set", "chain.set-token"),
    *("chain.add-contract", "chain.add-factory", "chain.sweep-now", "chain.resume"),
    "refund.address-link",
    "webhooks.replay",
}
_COUNT = 2 * BATCH + 1
_ROWS = """
    SELECT (SELECT count(*) FROM delivery WHERE state = 'dead') AS dead,
        (SELECT count(*) FROM audit) AS audit, (SELECT count(*) FROM money_case) AS cases,
        (SELECT count(*) FROM api_key WHERE revoked_at IS NULL) AS keys,
        (SELECT count(*) FROM ring_key WHERE retired_at IS NULL) AS writing
"""


@pytest.fixture
def terminal(settings: Settings) -> Iterator[Terminal]:
    with pytest.MonkeyPatch.context() as patch:
        terminal = Terminal(settings, patch)
        assert terminal.run("merchant", "create", "--name", "Nimbus Books").status == 0
        yield terminal


@pytest.fixture
def terminal_with_events(terminal: Terminal, settings: Settings) -> Terminal:
    """A terminal of an installation with many undelivered events."""
    statements = (
        """
        INSERT INTO payment (id, merchant_id, checkout_id, status, currency, amount, amount_text,
            payer_uid, include_pegged_assets, metadata, tax_manager, expires_at, cancelled_at,
            created_at, updated_at)
        SELECT gen_random_uuid(), 1, n::text, 'CANCELLED', 'THB', 1, '1', 'x', true, '{}', 'NONE',
            clock(), clock(), clock(), clock()
        FROM generate_series(1, $1::int) n
        """,
        """
        INSERT INTO event (id, payment_id, merchant_id, type, body, occurred_at)
        SELECT gen_random_uuid(), id, 1, 'payment.cancelled', '{}', clock()
        FROM payment LIMIT $1
        """,
        """
        INSERT INTO delivery (event_id, merchant_id, state, next_at)
        SELECT id, 1, 'dead', clock() FROM event LIMIT $1
        """,
    )
    for statement in statements:
        _query(settings, statement, _COUNT)
    return terminal


def _query(settings: Settings, query: str, *args: object) -> Any:
    async def run() -> Any:
        connection = await asyncpg.connect(settings.database_url)
        try:
            return await connection.fetchrow(query, *args)
        finally:
            await connection.close()

    return asyncio.run(run())


def _key(terminal: Terminal) -> str:
    [key] = terminal.run("key", "list", "1", "--json").json
    return key["public_id"]


def test_every_change_is_either_destructive_or_listed_as_harmless() -> None:
    changes = {name: kind for name, kind in OPERATIONS.items() if issubclass(kind, ChangeOperation)}
    assert {name for name, kind in changes.items() if not kind.is_destructive} == _HARMLESS
    with_dry_run = {name for name, kind in changes.items() if kind.has_dry_run}
    assert with_dry_run == {"webhooks.replay-missed", "keyring.rotate", "ledger.backfill"}


@pytest.mark.parametrize("typed", ["", "\n", "n\n", "no\n", "of course\n"])
def test_nothing_changes_unless_the_operator_confirms(
    terminal: Terminal, settings: Settings, typed: str
) -> None:
    key, before = _key(terminal), _query(settings, _ROWS)
    result = terminal.run("key", "revoke", key, typed=typed)
    assert (result.status, result.out) == (1, "")
    assert result.err == (
        f"payintent: key.revoke\n  public_id: {key}\n"
        "Continue? [y/N] payintent: nothing was changed\n"
    )
    assert _query(settings, _ROWS) == before


@pytest.mark.parametrize(
    ("words", "typed", "is_prompted"),
    [((), "y\n", True), ((), "YES\n", True), (("--yes",), "n\n", False), ((), None, False)],
)
def test_a_command_runs_once_confirmed_and_a_flag_or_a_script_needs_no_prompt(
    terminal: Terminal,
    settings: Settings,
    words: tuple[str, ...],
    typed: str | None,
    *,
    is_prompted: bool,
) -> None:
    result = terminal.run("key", "revoke", _key(terminal), *words, "--json", typed=typed)
    assert result.json["revoked_at"] is not None
    assert ("Continue?" in result.err) is is_prompted
    assert _query(settings, _ROWS)["keys"] == 0


def test_a_command_that_would_be_refused_does_not_ask_for_confirmation(settings: Settings) -> None:
    with pytest.MonkeyPatch.context() as patch:
        terminal = Terminal(settings.model_copy(update={"sandbox": False}), patch)
        terminal.bootstrap()
        result = terminal.run("key", "revoke", "AAAAAAAA", typed="y\n")
    assert result.err == "payintent: why is required: the audit log needs a reason\n"


def test_a_dry_run_of_a_replay_counts_and_changes_nothing(
    terminal_with_events: Terminal, settings: Settings
) -> None:
    before = _query(settings, _ROWS)
    assert before["dead"] == _COUNT
    replay = ("webhooks", "replay-missed", "--merchant", "1")
    dry_run = terminal_with_events.run(*replay, "--dry-run", "--json", typed="n\n")
    assert dry_run.err == ""
    assert (dry_run.json["dry_run"], dry_run.json["events"], dry_run.json["merchants"]) == (
        *(True, _COUNT, 1),
    )
    assert f"events     {_COUNT}\n" in terminal_with_events.run(*replay, "--dry-run").out
    assert _query(settings, _ROWS) == before


def test_a_dry_run_of_a_rotation_counts_and_changes_nothing(
    terminal: Terminal, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = settings.keyring.get_secret_value()
    monkeypatch.setenv("PAYINTENT_KEYRING", f"k2:{43 * 'a'}=,{old}")
    assert terminal.run("keyring", "show").status == 0  # records that the new key now encrypts
    before = _query(settings, _ROWS)
    dry_run = terminal.run("keyring", "rotate", "--dry-run", "--json").json
    assert _query(settings, _ROWS) == before
    rotation = terminal.run("keyring", "rotate", "--json").json
    assert dry_run == {"dry_run": True, "action": "keyring.rotate", **rotation}
    assert rotation["callback_secrets"] == 1
    again = terminal.run("keyring", "rotate", "--dry-run", "--json").json
    assert (again["callback_secrets"], again["retired"]) == (0, [])


def test_a_dry_run_of_a_reconciliation_counts_cases_without_opening_them(
    terminal: Terminal, settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "credentials.json").write_text('{"api_key": "k", "signing_secret": "x"}')
    (tmp_path / "list.csv").write_text(
        ",".join(HEADER) + "\npayment,ch_1,,10.00,THB,2026-11-21T08:00:00Z\n"
    )
    add = ("account", "add", "--provider", "simulator", "--base-url", "http://127.0.0.1:9/")
    assert terminal.run(*add, "--credentials", tmp_path / "credentials.json").status == 0
    compare = ("reconcile", "--provider", "simulator", "--file", tmp_path / "list.csv")
    before = _query(settings, _ROWS)
    dry_run = terminal.run(*compare, "--apply", "--dry-run")
    assert (dry_run.status, dry_run.out.splitlines()[-1]) == (1, "cases that would be opened: 1")
    refused = terminal.run(*compare, "--apply", typed="n\n")
    assert (refused.status, refused.out) == (2, "")
    assert "  cases to open: 1\nContinue? [y/N] " in refused.err
    assert _query(settings, _ROWS) == before
    applied = terminal.run(*compare, "--apply", typed="y\n")
    assert applied.out.splitlines()[-1] == "cases opened: 1, inquiries scheduled: 0"
    again = terminal.run(*compare, "--dry-run")
    assert again.out.splitlines()[-1] == "cases that would be opened: 0"


def test_a_replay_without_a_terminal_prints_its_progress_and_total(
    terminal_with_events: Terminal,
) -> None:
    result = terminal_with_events.run("webhooks", "replay-missed", "--merchant", "1", "--json")
    assert result.json["events"] == _COUNT
    assert set(result.json) == {"events", "first_event_id", "last_event_id"}
    name = "payintent: webhooks.replay-missed"
    assert result.err.splitlines() == [
        f"{name}: {_COUNT} rows",
        *(f"{name}: {count} of {_COUNT}" for count in (BATCH, 2 * BATCH, _COUNT)),
    ]


def test_a_small_replay_shows_no_progress(
    terminal_with_events: Terminal, settings: Settings
) -> None:
    _query(
        settings,
        "DELETE FROM delivery WHERE event_id > (SELECT id FROM event ORDER BY id OFFSET 9 LIMIT 1)",
    )
    result = terminal_with_events.run("webhooks", "replay-missed", "--merchant", "1", "--json")
    assert (result.json["events"], result.err) == (10, "")


def test_a_replay_at_a_terminal_asks_for_confirmation_with_the_event_count(
    terminal_with_events: Terminal, settings: Settings
) -> None:
    replay = ("webhooks", "replay-missed", "--merchant", "1")
    result = terminal_with_events.run(*replay, typed="y\n", columns=80)
    assert f"  {_COUNT} events will be resent\nContinue? [y/N] " in result.err
    assert f"{_COUNT} rows" not in result.err
    assert f"events          {_COUNT}" in result.out
    assert _query(settings, _ROWS)["dead"] == 0
