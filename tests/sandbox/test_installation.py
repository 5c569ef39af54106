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
    """Prepare a sandbox in a folder, with ports from a base upwards, without starting it."""

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
    listed = [
        await operate(world, ListPaymentMethods(merchant_id=merchant_id)) for merchant_id in ids
    ]
    return [[(method.label, method.kind) for method in methods] for methods in listed]


async def accounts(world: SandboxInstallation) -> list[tuple[int, str, str]]:
    found = [
        account
        for account in await operate(world, ListAccounts())
        if account.provider != "gateway_contract" and account.livemode
    ]
    return [(account.id, account.provider, account.base_url) for account in found]


def test_the_ports_are_those_that_the_pages_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PORT_BASE", raising=False)
    ports = Ports.from_environment()
    assert ports.all == (8080, 8081, 8082, 8083, 8084, 8545, 8546, 8547, 8088, 8089, 8090)
    monkeypatch.setenv("PORT_BASE", "9000")
    ports = Ports.from_environment()
    assert ports.gateways == (9008, 9009, 9010)
    assert ports.all == tuple(range(9000, 9011))


async def test_both_merchants_take_payments_at_every_gateway_the_simulator_first(
    prepare: Prepare,
) -> None:
    world = await prepare(9000)
    assert await methods(world) == [FIAT, FIAT]
    found = await accounts(world)
    assert [provider for _, provider, _ in found] == PROVIDERS
    assert [url for _, _, url in found] == [
        f"http://127.0.0.1:{port}" for port in (9001, 9008, 9009, 9010)
    ]
    shown = world.description()["gateways"]
    assert shown == {provider: {"url": url} for _, provider, url in found[1:]}


async def test_a_later_start_finds_accounts_and_keys_and_moves_them_to_its_ports(
    prepare: Prepare, tmp_path: Path
) -> None:
    first = await prepare(9000)
    before, kept = await accounts(first), json.loads((tmp_path / "sandbox.json").read_text())
    second = await prepare(9100)
    after = await accounts(second)
    assert [account[:2] for account in after] == [account[:2] for account in before]
    assert [url for _, _, url in after] == [
        f"http://127.0.0.1:{port}" for port in (9101, 9108, 9109, 9110)
    ]
    now = json.loads((tmp_path / "sandbox.json").read_text())
    assert now["gateways"] == kept["gateways"]
    assert await methods(second) == [FIAT, FIAT]


async def test_a_sandbox_of_an_older_version_gets_the_gateways_and_gives_back(
    prepare: Prepare, tmp_path: Path, database_url: str
) -> None:
    world = await prepare(9000)
    merchant_id = world.kept["merchants"][0]["id"]
    await operate(world, SetMerchantProfile(merchant_id=merchant_id, auto_refund=False))
    path = tmp_path / "sandbox.json"
    kept = json.loads(path.read_text())
    path.write_text(json.dumps({name: kept[name] for name in kept if name != "gateways"}))
    again = await prepare(9000)
    assert await methods(again) == [[*FIAT, *FIAT[2:]]] * 2
    assert (await operate(again, ShowMerchant(merchant_id=merchant_id))).auto_refund
    await operate(again, SetMerchantProfile(merchant_id=merchant_id, auto_refund=False))
    third = await prepare(9000)  # what an owner decides since then stays
    assert not (await operate(third, ShowMerchant(merchant_id=merchant_id))).auto_refund


async def test_there_is_an_operator_of_each_role_and_a_second_admin_whose_tokens_stay(
    prepare: Prepare,
) -> None:
    shown = (await prepare(9000)).description()
    operators = shown["operators"]
    assert [(operator["name"], operator["role"]) for operator in operators] == [
        ("dev", "admin"),
        ("dev-admin", "admin"),
        ("dev-finance", "finance"),
        ("dev-support", "support"),
        ("dev-viewer", "viewer"),
    ]
    assert operators[0]["token"] == shown["operator_token"]
    assert len({operator["token"] for operator in operators}) == len(operators)
    assert (await prepare(9000)).description()["operators"] == operators


async def test_the_first_merchant_has_a_test_key_that_stays(prepare: Prepare) -> None:
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


async def test_secrets_are_made_anew_for_every_sandbox_and_are_their_owners_alone(
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
    shown = json.dumps(world.description()) + repr(world) + repr(world.gateway_children())
    assert not [secret for secret in secrets if secret in shown]
    assert [child.name for child in world.gateway_children()] == PROVIDERS[1:]
    assert not [
        secret
        for child in world.gateway_children()
        for secret in secrets
        if secret in child.command
    ]


@pytest.mark.parametrize("base", ["abc", "-1", "0", "65526", "1.5", "99999999999999999999"])
def test_a_bad_base_of_the_ports_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], base: str
) -> None:
    monkeypatch.setenv("PORT_BASE", base)
    assert dev.run() == 1
    assert capsys.readouterr().err == (
        "payintent dev: PORT_BASE must be a number from 1 to 65525\n"
    )


@pytest.mark.parametrize("scale", ["abc", "0", "-1", "nan", "inf"])
def test_a_bad_scale_of_time_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], scale: str
) -> None:
    monkeypatch.setenv("SIM_TIME_SCALE", scale)
    assert dev.run() == 1
    assert capsys.readouterr().err == (
        "payintent dev: SIM_TIME_SCALE must be a number greater than zero\n"
    )


async def test_people_of_the_first_merchant_are_invited_anew_at_every_start(
    prepare: Any,
) -> None:
    links = [(await prepare(9000)).description()["portal"] for _ in range(2)]
    for shown in links:
        assert set(shown) == {"url", "developer", "finance"}
        assert shown["developer"].startswith(f"{shown['url']}/link/")
        assert shown["url"].startswith("http://localhost:")
    assert links[0]["finance"] != links[1]["finance"]
