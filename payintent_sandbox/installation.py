"""What the sandbox consists of: ports, secrets made at first start, merchants, chains."""

import base64
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from payintent.config import Settings
from payintent.domain.operator import TOKEN_DAYS_MAX, Role
from payintent.operations.accounts import AddAccount, ChangeAccount
from payintent.operations.base import Actor
from payintent.operations.merchants import CreateMerchant, SetCallbackUrl, SetMerchantProfile
from payintent.operations.operators import ExtendToken, IssueOperatorToken, ListOperatorTokens
from payintent.service import Service, open_service
from payintent.storage import migrations_runner
from payintent_sandbox.chains import dev_chains
from payintent_sandbox.chains.dev_chains import DevChain, DevChains
from payintent_sandbox.chains.registration import ChainRegistration
from payintent_sandbox.emulator_accounts import RunningEmulator, make_secrets, running_emulators
from payintent_sandbox.ports import Ports
from payintent_sandbox.private_files import write_private
from payintent_sandbox.processes import ChildProcess

ACTOR = Actor("sandbox", "the sandbox's own")
#: The first one's token is `operator_token`.
_OPERATORS = {
    "dev": Role.ADMIN,
    "dev-admin": Role.ADMIN,
    "dev-finance": Role.FINANCE,
    "dev-support": Role.SUPPORT,
    "dev-viewer": Role.VIEWER,
}
_MERCHANTS = ("Nimbus Books", "Harbour Tea")
#: Nobody waits for a development chain longer than for its blocks.
_POLLS = {
    "PAYINTENT_CHAIN_POLL_ETHEREUM_S": "0.5",
    "PAYINTENT_CHAIN_POLL_S": "0.5",
    "PAYINTENT_CHAIN_POLL_IDLE_S": "2",
    "PAYINTENT_CHAIN_BEHIND_MAX_S": "0",  # blocks are made while somebody waits for them
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxInstallation:
    """One sandbox: where it is, and its own secrets."""

    ports: Ports
    database_url: str = field(repr=False)
    kept: dict[str, Any] = field(repr=False)
    time_scale: float
    chains: dict[str, DevChain] = field(default_factory=dict[str, DevChain], repr=False)

    @property
    def api_url(self) -> str:
        """Give the API's base."""
        return f"http://127.0.0.1:{self.ports.api}/v1"

    @property
    def simulator_url(self) -> str:
        """Give the simulator gateway's address."""
        return f"http://127.0.0.1:{self.ports.simulator}"

    @property
    def operator_url(self) -> str:
        """Give the operator's address."""
        return f"http://127.0.0.1:{self.ports.operator}"

    @property
    def shop_url(self) -> str:
        """Give the demo shop's address."""
        return f"http://127.0.0.1:{self.ports.shop}"

    @property
    def gateways(self) -> list[RunningEmulator]:
        """Say where the gateways beside the simulator are."""
        return running_emulators(self.ports.gateways)

    @property
    def checkout_base(self) -> str:
        """Give the hosted checkout's base."""
        return f"http://127.0.0.1:{self.ports.api}/c"

    def ready_urls(self) -> list[tuple[str, bytes]]:
        """Name what must answer before the sandbox is ready, each with what its answer contains."""
        api = f"http://127.0.0.1:{self.ports.api}"
        healthy = [
            f"{self.simulator_url}/healthz",
            *(f"{one.url}/healthz" for one in self.gateways),
            f"{api}/healthz",
            f"{api}/readyz",
            f"{self.shop_url}/healthz",
        ]
        watched = [(f"{self.api_url}/chains/{slug}", b'"status":"active"') for slug in self.chains]
        return [(url, b"") for url in healthy] + watched

    def service_environment(self) -> dict[str, str]:
        """Give the settings of API and worker."""
        endpoints = {f"PAYINTENT_RPC_{slug.upper()}": one.url for slug, one in self.chains.items()}
        # A development chain signs for its own accounts.
        signers = {f"PAYINTENT_SIGNER_{slug.upper()}": one.url for slug, one in self.chains.items()}
        return (
            endpoints
            | signers
            | (_POLLS if endpoints else {})
            | {
                "DATABASE_URL": self.database_url,
                "PAYINTENT_PEPPER": self.kept["pepper"],
                "PAYINTENT_KEYRING": self.kept["keyring"],
                "PAYINTENT_CHECKOUT_BASE": self.checkout_base,
                "PAYINTENT_API_BASE": self.api_url,
                "PAYINTENT_SANDBOX": "true",
                "PAYINTENT_EDGE_SECRET": self.kept["edge_secret"],
                "PAYINTENT_EDGE_TRUSTED_PROXIES": "127.0.0.1",
                "PAYINTENT_CHECKOUT_PER_ADDRESS_PER_S": "0",
            }
        )

    async def take(self, service: Service, dev_chains: DevChains, slug: str) -> DevChain:
        """Make a chain ready and take payments on it, at the merchants that are there."""
        merchants = [one["id"] for one in self.kept["merchants"]]
        offer = ChainRegistration(service, ACTOR)
        self.chains[slug] = await offer.settle(dev_chains, slug, merchants)
        return self.chains[slug]

    def simulator_environment(self) -> dict[str, str]:
        """Give the simulator's account and pace."""
        return {
            "SIM_ACCOUNTS": json.dumps([self.kept["simulator"]]),
            "SIM_TIME_SCALE": f"{self.time_scale:g}",
        }

    def gateway_children(self) -> list[ChildProcess]:
        """Describe the processes of the gateways beside the simulator."""
        kept = self.kept["gateways"]
        return [
            one.child(kept[one.provider], self.api_url, self.time_scale) for one in self.gateways
        ]

    def shop_environment(self) -> dict[str, str]:
        """Give the shop what its merchant was given."""
        merchant = self.kept["merchants"][0]
        return {
            "SHOP_API_URL": self.api_url,
            "SHOP_API_KEY": merchant["api_key"],
            "SHOP_CALLBACK_SECRET": merchant["callback_secret"],
            "SHOP_PUBLIC_URL": self.shop_url,
        }

    def description(self) -> dict[str, Any]:
        """Describe the sandbox for whoever tries it: the content of `dev.json`."""
        return {
            "api_url": self.api_url,
            "checkout_base": self.checkout_base,
            "operator_url": self.operator_url,
            "operator_token": self.kept["operator_token"],
            "operators": self.kept["operators"],
            "shop_url": self.shop_url,
            "simulator_url": self.simulator_url,
            "gateways": {one.provider: {"url": one.url} for one in self.gateways},
            "sim_time_scale": self.time_scale,
            "database_url": self.database_url,
            "edge": {
                "country_header": "CloudFront-Viewer-Country",
                "secret_header": "X-Edge-Secret",
                "secret": self.kept["edge_secret"],
            },
            "merchants": self.kept["merchants"],
            "chains": dev_chains.describe_all(self.chains),
        }


async def prepare_world(
    var_dir: Path, ports: Ports, database_url: str, dev_chains: DevChains
) -> SandboxInstallation:
    """Migrate, and provision what is not there yet; a second start finds all of it."""
    keeper = _Keeper(var_dir / "sandbox.json")
    world = SandboxInstallation(
        ports=ports,
        database_url=database_url,
        kept=keeper.kept,
        time_scale=float(os.environ.get("SIM_TIME_SCALE", "10")),
    )
    await migrations_runner.migrate(database_url)
    running = {slug: dev_chains.url(slug) for slug in dev_chains.running}
    service = await open_service(_settings(world, running))
    try:
        await _provision_gateway(service, world)
        keeper.save()
        for gateway in world.gateways:
            await gateway.settle(service, ACTOR, world.kept["gateways"][gateway.provider])
            keeper.save()
        for slug in dev_chains.running:
            await world.take(service, dev_chains, slug)
        await _provision(service, world, keeper)
    finally:
        await service.close()
    return world


async def open_world(world: SandboxInstallation) -> Service:
    """Open the sandbox's service in this process."""
    return await open_service(
        _settings(world, {slug: chain.url for slug, chain in world.chains.items()})
    )


class _Keeper:
    """The sandbox's own secrets, in a file that only its owner can read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.kept: dict[str, Any] = json.loads(path.read_text()) if path.exists() else _secrets()
        # Made when the simulator was the only gateway, and gave nothing back.
        self.is_older = "gateways" not in self.kept
        if self.is_older:
            self.kept["gateways"] = make_secrets()
        self.kept.setdefault("operators", [])
        self.save()

    def save(self) -> None:
        write_private(self._path, json.dumps(self.kept))


def _secrets() -> dict[str, Any]:
    return {
        "pepper": _key(),
        "keyring": f"dev:{_key()}",
        "simulator": {
            "api_key": f"simkey_{secrets.token_urlsafe(24)}",
            "signing_secret": f"simsecret_{secrets.token_urlsafe(24)}",
        },
        "gateways": make_secrets(),
        "edge_secret": secrets.token_urlsafe(24),
        "operator_token": None,
        "operators": [],
        "account_id": None,
        "merchants": [],
    }


def _key() -> str:
    return base64.b64encode(secrets.token_bytes(32)).decode()


def _settings(world: SandboxInstallation, endpoints: Mapping[str, str]) -> Settings:
    return Settings.model_validate(
        {
            "database_url": world.database_url,
            "pepper": world.kept["pepper"],
            "keyring": world.kept["keyring"],
            "sandbox": True,
        }
        | {f"rpc_{slug}": url for slug, url in endpoints.items()}
    )


async def _provision(service: Service, world: SandboxInstallation, keeper: _Keeper) -> None:
    await _settle_operators(service, world.kept, keeper)
    for index, name in enumerate(_MERCHANTS):
        callback_url = f"{world.shop_url}/webhooks" if index == 0 else None
        if index < len(world.kept["merchants"]):
            await _move(service, world.kept["merchants"][index], callback_url)
        else:
            world.kept["merchants"].append(await _create(service, name, callback_url))
        keeper.save()
        merchant_id: int = world.kept["merchants"][index]["id"]
        await _offer(service, world, merchant_id)
        if keeper.is_older:
            await service.run_operation(
                SetMerchantProfile(merchant_id=merchant_id, auto_refund=True), ACTOR
            )
    shop = SetMerchantProfile(
        merchant_id=world.kept["merchants"][0]["id"],
        return_url=f"{world.shop_url}/orders",
        allowed_origins=[world.shop_url],  # its pages show the checkout in a frame
    )
    await service.run_operation(shop, ACTOR)


async def _settle_operators(service: Service, kept: dict[str, Any], keeper: _Keeper) -> None:
    """Have an operator of each role, and a second admin: what one proposes the other approves."""
    if (
        kept["operator_token"] is not None and not kept["operators"]
    ):  # made when there were no roles
        kept["operators"] = [{"name": "dev", "role": "admin", "token": kept["operator_token"]}]
    there = {operator["name"]: operator for operator in kept["operators"]}
    for name, role in _OPERATORS.items():
        if name not in there:
            new = IssueOperatorToken(name=name, role=role, days=TOKEN_DAYS_MAX)
            issued = await service.run_operation(new, ACTOR)
            kept["operators"].append({"name": name, "role": role, "token": issued.token})
            keeper.save()
    for token in await service.run_operation(ListOperatorTokens(), ACTOR):
        if token.name in there and token.revoked_at is None:
            lives_on = ExtendToken(public_id=token.public_id, days=TOKEN_DAYS_MAX)
            await service.run_operation(lives_on, ACTOR)
    kept["operator_token"] = kept["operators"][0]["token"]


async def _provision_gateway(service: Service, world: SandboxInstallation) -> None:
    url, credentials = world.simulator_url, world.kept["simulator"]
    if world.kept["account_id"] is None:
        new = AddAccount(provider="simulator", base_url=url, credentials=credentials)
        world.kept["account_id"] = (await service.run_operation(new, ACTOR)).id
    else:  # the ports may be others than last time
        moved = ChangeAccount(
            account_id=world.kept["account_id"], base_url=url, credentials=credentials
        )
        await service.run_operation(moved, ACTOR)


async def _create(service: Service, name: str, callback_url: str | None) -> dict[str, Any]:
    new = await service.run_operation(
        CreateMerchant(name=name, callback_url=callback_url, methods="all"), ACTOR
    )
    return {
        "id": new.merchant.id,
        "name": name,
        "api_key": new.api_key,
        "callback_secret": new.callback_secret,
        "callback_url": callback_url,
    }


async def _offer(service: Service, world: SandboxInstallation, merchant_id: int) -> None:
    for gateway in world.gateways:
        kept = world.kept["gateways"][gateway.provider]
        await gateway.offer(service, ACTOR, kept, merchant_id)


async def _move(service: Service, merchant: dict[str, Any], callback_url: str | None) -> None:
    if merchant["callback_url"] != callback_url:
        merchant["callback_url"] = callback_url
        moved = SetCallbackUrl(merchant_id=merchant["id"], callback_url=callback_url)
        await service.run_operation(moved, ACTOR)
