"""An operator's use of the command line, from an empty database to a replayed webhook."""

import asyncio
import base64
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import pytest

from payintent.merchants.operations import SetCallbackUrl
from payintent.payments.cancel import cancel_by_merchant
from tests.cli.conftest import Run
from tests.support.world import World

pytestmark = pytest.mark.full

_OTHER_KEY = base64.b64encode(b"another key of thirty-two bytes!").decode()


def test_an_empty_database_is_migrated_once_and_then_healthy(run: Run, server_url: str) -> None:
    name = f"test_{uuid4().hex}"
    url = urlunsplit(urlsplit(server_url)._replace(path=f"/{name}"))
    asyncio.run(_execute(server_url, f'CREATE DATABASE "{name}"'))
    try:
        before = run("doctor", DATABASE_URL=url)
        assert before.status == 1
        assert "run payintent migrate" in before.out + before.err
        first = run("migrate", DATABASE_URL=url)
        assert (first.status, "applied 0001_initial" in first.out) == (0, True)
        assert run("migrate", DATABASE_URL=url).out == "nothing to do\n"
        after = run("doctor", DATABASE_URL=url)
        assert after.status == 0
        assert "FAIL" not in after.out
    finally:
        asyncio.run(_execute(server_url, f'DROP DATABASE "{name}" WITH (FORCE)'))


def test_migrate_rejects_a_schema_that_is_too_old_and_explains_the_upgrade(
    run: Run, server_url: str
) -> None:
    name = f"test_{uuid4().hex}"
    url = urlunsplit(urlsplit(server_url)._replace(path=f"/{name}"))
    asyncio.run(_execute(server_url, f'CREATE DATABASE "{name}"'))
    try:
        assert run("migrate", DATABASE_URL=url).status == 0
        asyncio.run(_execute(url, "UPDATE schema_migration SET name = '0001_core'"))
        assert run("migrate", DATABASE_URL=url).line == (
            "payintent: the schema is older than the last version before 1.0; "
            "upgrade to that version first"
        )
    finally:
        asyncio.run(_execute(server_url, f'DROP DATABASE "{name}" WITH (FORCE)'))


def test_migrate_runs_a_grants_file_and_reports_its_errors(run: Run, tmp_path: Path) -> None:
    grants = tmp_path / "grants.sql"
    grants.write_text("GRANT SELECT ON payment TO PUBLIC;")
    assert run("migrate", "--grants", grants).out == "nothing to do\n"
    grants.write_text("BEGIN; GRANT SELECT ON payments TO PUBLIC; COMMIT;")
    refused = 'payintent: the grants failed: relation "payments" does not exist'
    assert run("migrate", "--grants", grants).line == refused
    message = run("migrate", "--grants", tmp_path / "none.sql").line
    assert message.endswith("none.sql cannot be read: No such file or directory")


def test_a_merchant_can_be_created_shown_and_issued_a_new_secret(run: Run) -> None:
    created = run(
        *("merchant", "create", "--name", "Nimbus Books", "--methods", "none", "--json"),
        *("--callback-url", "http://127.0.0.1:9999/hooks"),
    ).json
    assert list(created) == ["id", "api_key", "callback_secret"]
    assert created["api_key"].startswith("sk_live_")
    assert len(base64.b64decode(created["callback_secret"].removeprefix("whsec_"))) == 32
    details = run("merchant", "show", created["id"], "--json")
    assert (details.json["name"], details.json["callback_url"]) == (
        "Nimbus Books",
        "http://127.0.0.1:9999/hooks",
    )
    merchants = run("merchant", "list", "--json")
    assert merchants.json == [details.json]
    rotated = run("merchant", "rotate-secret", created["id"], "--json").json
    assert list(rotated) == ["id", "callback_secret"]
    assert rotated["callback_secret"] != created["callback_secret"]
    for secret in (created["api_key"], created["callback_secret"], rotated["callback_secret"]):
        assert secret not in details.out + merchants.out
    assert "no merchant 99" in run("merchant", "show", 99).line


def test_an_http_callback_url_is_rejected_outside_the_sandbox(run: Run) -> None:
    create = ("merchant", "create", "--name", "X", "--callback-url", "http://127.0.0.1:9999/")
    issue = ("operator", "issue", "Ada", "--role", "admin", "--why", "the first", "--json")
    token = run(*issue, PAYINTENT_SANDBOX=None).json["token"]
    outside = {"PAYINTENT_SANDBOX": None, "PAYINTENT_OPERATOR_TOKEN": token}
    refused = run(*create, "--why", "a test", **outside)
    assert "callback_url must be https" in refused.line


async def test_all_methods_come_from_the_accounts_of_the_platform(run: Run, world: World) -> None:
    created = (
        await _run_in_thread(run, "merchant", "create", "--name", "X", "--methods", "all", "--json")
    ).json
    rows = await world.rows(
        "SELECT account_id, kind FROM payment_method WHERE merchant_id = $1 ORDER BY position",
        created["id"],
    )
    assert [(row["account_id"], row["kind"]) for row in rows] == [
        (world.account_id, "card"),
        (world.account_id, "redirect"),
    ]


async def test_keys_are_issued_listed_and_revoked(run: Run, world: World) -> None:
    issued = (
        await _run_in_thread(run, "key", "issue", world.merchant_id, "--name", "ci", "--json")
    ).json
    assert list(issued) == ["merchant_id", "api_key", "callback_secret"]
    assert issued["callback_secret"] is None  # only a new test merchant gets a secret
    public_id = issued["api_key"].split("_")[2]
    revoked = (await _run_in_thread(run, "key", "revoke", public_id, "--json")).json
    assert revoked["revoked_at"]
    keys = await _run_in_thread(run, "key", "list", world.merchant_id, "--json")
    states = {item["name"]: item["revoked_at"] is not None for item in keys.json}
    assert states == {"first": False, "ci": True}
    assert issued["api_key"] not in keys.out


async def test_a_payment_is_shown_with_a_masked_checkout_id(run: Run, world: World) -> None:
    from payintent.core import ids

    payment = await world.create(metadata='{"b": 1.0}')
    payment_id = ids.format_id(ids.PAYMENT, payment.id)
    as_json, as_text = [
        await _run_in_thread(run, "payment", "show", payment_id, *more) for more in (["--json"], [])
    ]
    assert (as_json.json["id"], as_json.json["cases"]) == (payment_id, [])
    assert '"metadata":{"b": 1.0}' in as_json.out
    assert payment_id in as_text.out
    for result in (as_json, as_text):
        assert payment.checkout_id not in result.out
        assert ids.mask_checkout_id(payment.checkout_id) in result.out
    assert "no payment" in (await _run_in_thread(run, "payment", "show", "pay_x")).line


async def test_webhooks_are_listed_shown_and_resent(run: Run, world: World) -> None:
    payment = await world.create()
    async with world.database.transaction() as tx:
        await cancel_by_merchant(tx, payment, None)
    [delivery] = (
        await _run_in_thread(run, "webhooks", "list", "--state", "skipped", "--json")
    ).json
    assert (delivery["type"], delivery["state"]) == ("payment.cancelled", "skipped")
    details = (await _run_in_thread(run, "webhooks", "show", delivery["event_id"], "--json")).json
    assert details["event"]["id"] == delivery["event_id"]
    assert '"type":"payment.cancelled"' in details["event"]["body"]
    assert details["attempts"] == []
    moved = SetCallbackUrl(merchant_id=world.merchant_id, callback_url="http://127.0.0.1:9/")
    await world.perform(moved)
    again = (await _run_in_thread(run, "webhooks", "replay", delivery["event_id"], "--json")).json
    assert again == {"event_id": delivery["event_id"], "merchant_id": world.merchant_id}
    [after] = (await _run_in_thread(run, "webhooks", "list", "--json")).json
    assert (after["event_id"], after["state"]) == (delivery["event_id"], "pending")
    assert "no event" in (await _run_in_thread(run, "webhooks", "replay", uuid4())).line


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"PAYINTENT_KEYRING": None}, "PAYINTENT_KEYRING is missing"),
        ({"PAYINTENT_LOG_LEVEL": "loud"}, "must be one of DEBUG, INFO, WARNING, ERROR"),
        ({"PAYINTENT_KEYRING": "test:c2hvcnQ="}, "32 bytes"),
    ],
)
def test_missing_or_invalid_settings_are_reported_in_a_single_line(
    run: Run, changes: dict[str, Any], message: str
) -> None:
    assert message in run("merchant", "list", **changes).line


async def test_secrets_of_another_installation_are_rejected(run: Run, world: World) -> None:
    for changed in (
        {"PAYINTENT_PEPPER": _OTHER_KEY},
        {"PAYINTENT_KEYRING": f"test:{_OTHER_KEY}"},
    ):
        line = (await _run_in_thread(run, "merchant", "list", **changed)).line
        assert "does not belong to this database" in line
    ring = f"newer:{_OTHER_KEY},{world.service.settings.keyring.get_secret_value()}"
    assert (await _run_in_thread(run, "merchant", "list", PAYINTENT_KEYRING=ring)).status == 0


async def test_a_database_role_without_grants_is_reported_in_a_single_line(
    run: Run, database_url: str
) -> None:
    role = f"role_{uuid4().hex}"
    parts = urlsplit(database_url)
    netloc = f"{role}:of-a-role@{parts.hostname}:{parts.port}"
    url = urlunsplit(parts._replace(netloc=netloc))
    await _execute(database_url, f"CREATE ROLE {role} LOGIN PASSWORD 'of-a-role'")
    try:
        line = (await _run_in_thread(run, "merchant", "list", DATABASE_URL=url)).line
    finally:
        await _execute(database_url, f"DROP ROLE {role}")
    assert line == "payintent: permission denied for table installation"


async def _run_in_thread(run: Run, *arguments: object, **changes: str | None) -> Any:
    """Run the command in a thread, because the event loop is in use by the service."""
    return await asyncio.to_thread(run, *arguments, **changes)


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(statement)
    await connection.close()
