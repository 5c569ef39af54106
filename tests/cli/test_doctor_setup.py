"""`payintent doctor` reports missing operators and incomplete accounts."""

import asyncio
from dataclasses import replace

import msgspec
import pytest

from payintent.cli.doctor import SetupFinding, check_setup
from payintent.core.access import Role
from payintent.gateway_accounts.operations import DisableAccount
from payintent.operators.operation import OperationContext
from payintent.operators.operations import IssueOperatorToken, RevokeOperatorToken
from payintent.runtime.encryption import (
    EncryptionKeyError,
    make_account_context,
    make_legacy_account_context,
)
from payintent.runtime.settings_checks import find_interpreter_warnings
from tests.cli.conftest import Run, run
from tests.support.fakes import FakeGateway
from tests.support.world import World

__all__ = ["run"]
_DAY_S = 24 * 3600
_ALL_WELL = SetupFinding("accounts", True, "1, with all required credentials")


@pytest.fixture
def context(world: World) -> OperationContext:
    """An operation context outside the sandbox, with an adapter that requires a time zone."""
    service, adapter = world.service, FakeGateway()
    adapter.capabilities = replace(adapter.capabilities, credentials=frozenset({"utc_offset"}))
    adapters = {"fake": FakeGateway(), "2c2p": adapter}
    return replace(
        service.operation_context,
        settings=service.settings.model_copy(update={"sandbox": False}),
        gateways=adapters,
    )


async def _add_account(world: World, credentials: dict[str, str]) -> int:
    """Add a 2C2P account as it was stored before its credentials were checked."""
    await world.rows("INSERT INTO provider (name, wire_name) VALUES ('2c2p', '2c2p') "
                     "ON CONFLICT DO NOTHING")  # fmt: skip
    [row] = await world.rows(
        "INSERT INTO provider_account (provider, base_url) VALUES ('2c2p', 'http://2c2p.test') "
        "RETURNING id"
    )
    encryption_context = make_account_context(row["id"], "2c2p", "http://2c2p.test")
    await _seal(world, row["id"], encryption_context, credentials)
    return row["id"]


async def _seal(
    world: World, account_id: int, encryption_context: str, credentials: dict[str, str]
) -> None:
    sealed = world.service.encryption.encrypt(msgspec.json.encode(credentials), encryption_context)
    await world.rows("UPDATE provider_account SET sealed = $2 WHERE id = $1", account_id, sealed)


async def test_fewer_than_two_admins_with_valid_tokens_are_reported(
    world: World, context: OperationContext
) -> None:
    async def admins() -> tuple[bool, str]:
        [finding, _] = await check_setup(context)
        return finding.is_ok, finding.text

    too_few = "at least 2 are needed to approve admin operations"
    assert await admins() == (False, f"admins with a valid token: 0; {too_few}")
    await world.perform(IssueOperatorToken(name="Ada", role=Role.ADMIN))
    await world.perform(IssueOperatorToken(name="Fay", role=Role.FINANCE))
    assert await admins() == (False, f"admins with a valid token: 1; {too_few}")
    alan = await world.perform(IssueOperatorToken(name="Alan", role=Role.ADMIN))
    await world.perform(IssueOperatorToken(name="Eve", role=Role.ADMIN, days=1))
    assert await admins() == (True, "admins with a valid token: 3")
    await world.perform(RevokeOperatorToken(public_id=alan.token.split("_")[1]))
    assert await admins() == (True, "admins with a valid token: 2")
    await world.move_clock(_DAY_S + 1)
    assert await admins() == (False, f"admins with a valid token: 1; {too_few}")


@pytest.mark.parametrize("role", ["admin", "finance"])
async def test_admins_who_sign_in_with_openid_connect_need_no_token(
    world: World, context: OperationContext, role: str
) -> None:
    database = context.database
    update = {"oidc_issuer": "https://login.test", "oidc_roles": f"staff={role}"}
    database.settings = database.settings.model_copy(update=update)
    [finding, _] = await check_setup(context)
    text = "admins with a valid token: 0"
    if role == "admin":
        assert finding == SetupFinding(
            "operators", True, f"{text}; other admins sign in with OpenID Connect"
        )
    else:
        assert not finding.is_ok


async def test_in_the_sandbox_missing_admins_are_not_reported(world: World) -> None:
    assert await check_setup(world.service.operation_context) == [_ALL_WELL]


async def test_accounts_that_lack_a_required_credential_are_reported(
    world: World, context: OperationContext
) -> None:
    context = replace(context, settings=world.service.settings)
    assert await check_setup(context) == [_ALL_WELL]
    await _add_account(world, {"utc_offset": "+08:00"})
    account_ids = [await _add_account(world, {"secret_key": "x"}) for _ in range(3)]
    await world.perform(DisableAccount(account_id=account_ids.pop()))
    text = "accounts at 2c2p are unusable because they lack utc_offset: "
    assert await check_setup(context) == [
        SetupFinding("accounts", False, text + ", ".join(map(str, account_ids)))
    ]


async def test_accounts_whose_gateway_is_not_installed_are_reported(
    world: World,
) -> None:
    """This happens if an upgrade does not include the gateway's package."""
    account_ids = [await _add_account(world, {"utc_offset": "+08:00"}) for _ in range(3)]
    await world.perform(DisableAccount(account_id=account_ids.pop()))
    text = (
        "accounts at 2c2p, whose gateway is not installed: "
        f"{', '.join(map(str, account_ids))}; install its package before you start the service"
    )
    context = world.service.operation_context
    assert await check_setup(context) == [SetupFinding("accounts", False, text)]


async def test_unbound_credentials_are_reported_and_wrongly_bound_credentials_fail(
    world: World, context: OperationContext
) -> None:
    context = replace(context, settings=world.service.settings)
    encryption_context = make_legacy_account_context(world.account_id)
    await _seal(world, world.account_id, encryption_context, {"signing_secret": "x"})
    [finding] = await check_setup(context)
    assert finding == SetupFinding(
        "accounts",
        False,
        "accounts whose credentials are not bound to provider and base_url: "
        f"{world.account_id}; run payintent keyring rotate",
    )
    await _seal(world, world.account_id, "elsewhere", {"signing_secret": "x"})
    with pytest.raises(EncryptionKeyError):
        await check_setup(context)


async def test_doctor_prints_setup_problems_as_warnings_and_succeeds(
    world: World, run: Run
) -> None:
    await _add_account(world, {"secret_key": "x"})
    encryption_context = make_legacy_account_context(world.account_id)
    await _seal(world, world.account_id, encryption_context, {"signing_secret": "x"})
    result = await asyncio.to_thread(run, "doctor", PAYINTENT_SANDBOX=None)
    assert result.status == 0, result
    lines = [line.split(None, 2) for line in result.out.splitlines()]
    warnings = [(subject, text.split(":")[0]) for subject, level, text in lines if level == "WARN"]
    missing = "gateway_public_key, merchant_id, merchant_private_key, utc_offset"
    interpreter_warnings = [
        ("payintent", warning.split(":")[0]) for warning in find_interpreter_warnings()
    ]
    assert warnings == [
        *interpreter_warnings,
        (
            "addresses",
            "PAYINTENT_API_BASE is on this machine, so gateways and buyers cannot reach it",
        ),
        ("service", "the secrets match this database; this database role can change the audit log"),
        ("operators", "admins with a valid token"),
        ("accounts", "accounts at fake, whose gateway is not installed"),
        ("accounts", f"accounts at 2c2p are unusable because they lack {missing}"),
        ("accounts", "accounts whose credentials are not bound to provider and base_url"),
    ]
    await _seal(world, world.account_id, "elsewhere", {"signing_secret": "x"})
    assert (await asyncio.to_thread(run, "doctor")).status == 1
