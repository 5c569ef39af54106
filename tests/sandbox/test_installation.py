"""The provisioning of a sandbox at its first start and at later starts."""

import json
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from payintent.gateway_accounts.operations import ListAccounts
from payintent.merchants.methods_operations import ListPaymentMethods
from payintent.merchants.operations import SetMerchantProfile, ShowMerchant
from payintent_sandbox import dev
from payintent_sandbox.chains.dev_chains import DevChains
from payintent_sandbox.installation import (
    ACTOR,
    SandboxInstallation,
    open_installed_service,
    prepare_installation,
)
from payintent_sandbox.ports import Ports

pytestmark = pytest.mark.full

FIAT = [
    ("Card", "card"),
    ("Bank transfer", "redirect"),
    ("Card (Stripe)", "card"),
    ("Card (ECPay)", "card"),
    ("2C2P", "redirect"),
]
PROVIDERS = ["simulator", "stripe", "ecpay", "2c2p"]

Prepare = Callable[[int], Awaitable[SandboxInstallation]]


@pytest.fixture
def prepare(tmp_path: Path, database_url: str) -> Prepare:
    """Prepare a sandbox in a folder, without starting it. Its ports start at a base port."""

    async def prepared(base: int) -> SandboxInstallation:
        ports = Ports.from_base(base)
        return await prepare_installation(
            tmp_path, ports, database_url, DevChains(tmp_path, ports.chains)
        )

    return prepared


async def operate(world: SandboxInstallation, operation: Any) -> Any:
    service = await open_installed_service(world)
    try:
        return await service.run_operation(operation, ACTOR)
    finally:
        await service.close()


async def methods(world: SandboxInstallation) -> list[list[tuple[str, str]]]:
    """Return the labels and kinds of each merchant's methods, in order."""
    ids = [merchant["id"] for merchant in world.kept["merchants"]]
    method_lists = [
        await operate(world, ListPaymentMethods(merchant_id=merchant_id)) for merchant_id in ids
    ]
    return [[(method.label, method.kind) for method in methods] for methods in method_lists]


async def accounts(world: SandboxInstallation) -> list[tuple[int, str, str]]:
    live_accounts = [
        account
        for account in await operate(world, ListAccounts())
        if account.provider != "gateway_contract" and account.livemode
    ]
    return [(account.id, account.provider, account.base_url) for account in live_accounts]


def test_the_ports_match_the_documentation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PORT_BASE", raising=False)
    ports = Ports.from_environment()
    assert ports.all == (8080, 8081, 8082, 8083, 8084, 8545, 8546, 8547, 8088, 8089, 8090)
    monkeypatch.setenv("PORT_BASE", "9000")
    ports = Ports.from_environment()
    assert ports.gateways == (9008, 9009, 9010)
    assert ports.all == tuple(range(9000, 9011))


async def test_both_merchants_have_every_gateway_with_the_simulator_first(
    prepare: Prepare,
) -> None:
    world = await prepare(9000)
    assert await methods(world) == [FIAT, FIAT]
    installed_accounts = await accounts(world)
    assert [provider for _, provider, _ in installed_accounts] == PROVIDERS
    assert [url for _, _, url in installed_accounts] == [
        f"http://127.0.0.1:{port}" for port in (9001, 9008, 9009, 9010)
    ]
    gateways = world.description()["gateways"]
    assert gateways == {provider: {"url": url} for _, provider, url in installed_accounts[1:]}


async def test_a_restart_preserves_accounts_and_keys_and_updates_the_ports(
    prepare: Prepare, tmp_path: Path
) -> None:
    first = await prepare(9000)
    before, stored_before = (
        await accounts(first),
        json.loads((tmp_path / "sandbox.json").read_text()),
    )
    second = await prepare(9100)
    after = await accounts(second)
    assert [account[:2] for account in after] == [account[:2] for account in before]
    assert [url for _, _, url in after] == [
        f"http://127.0.0.1:{port}" for port in (9101, 9108, 9109, 9110)
    ]
    stored_after = json.loads((tmp_path / "sandbox.json").read_text())
    assert stored_after["gateways"] == stored_before["gateways"]
    assert await methods(second) == [FIAT, FIAT]


async def test_an_upgraded_sandbox_gets_new_gateways_and_automatic_refunds(
    prepare: Prepare, tmp_path: Path, database_url: str
) -> None:
    world = await prepare(9000)
    merchant_id = world.kept["merchants"][0]["id"]
    await operate(world, SetMerchantProfile(merchant_id=merchant_id, auto_refund=False))
    path = tmp_path / "sandbox.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps({name: document[name] for name in document if name != "gateways"}))
    again = await prepare(9000)
    assert await methods(again) == [[*FIAT, *FIAT[2:]]] * 2
    assert (await operate(again, ShowMerchant(merchant_id=merchant_id))).auto_refund
    await operate(again, SetMerchantProfile(merchant_id=merchant_id, auto_refund=False))
    third = await prepare(9000)  # later decisions of the owner are preserved
    assert not (await operate(third, ShowMerchant(merchant_id=merchant_id))).auto_refund


async def test_each_role_and_a_second_admin_has_an_operator_with_a_stable_token(
    prepare: Prepare,
) -> None:
    description = (await prepare(9000)).description()
    operators = description["operators"]
    assert [(operator["name"], operator["role"]) for operator in operators] == [
        ("dev", "admin"),
        ("dev-admin", "admin"),
        ("dev-finance", "finance"),
        ("dev-support", "support"),
        ("dev-viewer", "viewer"),
    ]
    assert operators[0]["token"] == description["operator_token"]
    assert len({operator["token"] for operator in operators}) == len(operators)
    assert (await prepare(9000)).description()["operators"] == operators


async def test_the_first_merchant_has_a_stable_test_key(prepare: Prepare) -> None:
    [test] = [
        merchant["test"]
        for merchant in (await prepare(9000)).kept["merchants"]
        if "test" in merchant
    ]
    assert test["api_key"].startswith("sk_test_")
    world = await prepare(9000)
    assert world.description()["merchants"][0]["test"] == test
    methods = await operate(world, ListPaymentMethods(merchant_id=test["merchant_id"]))
    assert [(method.provider, method.label) for method in methods] == [
        ("test", "Test card"),
        ("test_onchain", "USDT on Test chain"),
        ("test_onchain", "USDC on Test chain"),
    ]


async def test_each_sandbox_generates_its_own_private_secrets(
    prepare: Prepare, tmp_path: Path
) -> None:
    world = await prepare(9000)
    assert stat.S_IMODE((tmp_path / "sandbox.json").stat().st_mode) == 0o600
    secrets = [
        value
        for gateway in world.kept["gateways"].values()
        for name, value in gateway["secrets"].items()
        if name != "merchant_id" and "public" not in name
    ]
    assert len(secrets) == len(set(secrets)) == 9
    text = json.dumps(world.description()) + repr(world) + repr(world.gateway_children())
    assert not [secret for secret in secrets if secret in text]
    assert [child.name for child in world.gateway_children()] == PROVIDERS[1:]
    assert not [
        secret
        for child in world.gateway_children()
        for secret in secrets
        if secret in child.command
    ]


@pytest.mark.parametrize("base", ["abc", "-1", "0", "65526", "1.5", "99999999999999999999"])
def test_an_invalid_port_base_is_reported_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], base: str
) -> None:
    monkeypatch.setenv("PORT_BASE", base)
    assert dev.run() == 1
    assert capsys.readouterr().err == (
        "payintent dev: PORT_BASE must be a number from 1 to 65525\n"
    )


@pytest.mark.parametrize("scale", ["abc", "0", "-1", "nan", "inf"])
def test_an_invalid_time_scale_is_reported_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], scale: str
) -> None:
    monkeypatch.setenv("SIM_TIME_SCALE", scale)
    assert dev.run() == 1
    assert capsys.readouterr().err == (
        "payintent dev: SIM_TIME_SCALE must be a number greater than zero\n"
    )


async def test_the_members_of_the_first_merchant_get_new_invitations_at_every_start(
    prepare: Any,
) -> None:
    links = [(await prepare(9000)).description()["portal"] for _ in range(2)]
    for portal in links:
        assert set(portal) == {"url", "developer", "finance"}
        assert portal["developer"].startswith(f"{portal['url']}/link/")
        assert portal["url"].startswith("http://localhost:")
    assert links[0]["finance"] != links[1]["finance"]
