"""A sandbox's ports, stored secrets, merchants, accounts, operators and chains."""

import base64
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from payintent.core.access import TOKEN_DAYS_MAX, Role
from payintent.db import migrations_runner
from payintent.gateway_accounts.operations import AddAccount, ChangeAccount
from payintent.members.model import MemberRole
from payintent.members.operations import InviteMember
from payintent.merchants.access_operations import IssueApiKey
from payintent.merchants.operations import CreateMerchant, SetCallbackUrl, SetMerchantProfile
from payintent.operators.operation import Actor
from payintent.operators.operations import ExtendToken, IssueOperatorToken, ListOperatorTokens
from payintent.runtime.settings import Settings
from payintent.service import Service, open_service
from payintent_sandbox.chains import dev_chains
from payintent_sandbox.chains.dev_chains import DevChain, DevChains
from payintent_sandbox.chains.registration import ChainRegistration
from payintent_sandbox.emulator_accounts import RunningEmulator, make_secrets, running_emulators
from payintent_sandbox.emulators.runner import read_time_scale
from payintent_sandbox.ports import Ports
from payintent_sandbox.private_files import write_private
from payintent_sandbox.processes import ChildProcess

ACTOR = Actor("sandbox", "the sandbox's own")
#: The first operator's token is `operator_token`.
_OPERATORS = {
    "dev": Role.ADMIN,
    "dev-admin": Role.ADMIN,
    "dev-finance": Role.FINANCE,
    "dev-support": Role.SUPPORT,
    "dev-viewer": Role.VIEWER,
}
TIME_SCALE = "10"  # the default of SIM_TIME_SCALE
_MERCHANTS = ("Nimbus Books", "Harbour Tea")
#: Environment variables that are passed on to the service.
_PASSED_ON = ("PAYINTENT_OTLP_ENDPOINT",)
#: Development chains are polled more often than real chains.
_POLLS = {
    "PAYINTENT_CHAIN_POLL_ETHEREUM_S": "0.5",
    "PAYINTENT_CHAIN_POLL_S": "0.5",
    "PAYINTENT_CHAIN_POLL_IDLE_S": "2",
    "PAYINTENT_CHAIN_BEHIND_MAX_S": "0",  # blocks are mined only when needed
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxInstallation:
    """A sandbox's URLs and stored secrets."""

    ports: Ports
    database_url: str = field(repr=False)
    kept: dict[str, Any] = field(repr=False)
    time_scale: float
    chains: dict[str, DevChain] = field(default_factory=dict[str, DevChain], repr=False)
    #: Sign-in links for the first merchant's members, by role. Each link works only once.
    portal_links: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    packages_dir: str = ""

    @property
    def api_url(self) -> str:
        return f"http://127.0.0.1:{self.ports.api}/v1"

    @property
    def simulator_url(self) -> str:
        return f"http://127.0.0.1:{self.ports.simulator}"

    @property
    def operator_url(self) -> str:
        return f"http://127.0.0.1:{self.ports.operator}"

    @property
    def shop_url(self) -> str:
        return f"http://127.0.0.1:{self.ports.shop}"

    @property
    def gateways(self) -> list[RunningEmulator]:
        """Return all emulators except the simulator."""
        return running_emulators(self.ports.gateways)

    @property
    def checkout_base(self) -> str:
        return f"http://127.0.0.1:{self.ports.api}/c"

    @property
    def portal_base(self) -> str:
        """Return the portal's base URL. Its host is a name, because passkeys need a host name."""
        return f"http://localhost:{self.ports.api}/merchant"

    def ready_urls(self) -> list[tuple[str, bytes]]:
        """Return the URLs that must respond during startup, each with part of the expected body."""
        api = f"http://127.0.0.1:{self.ports.api}"
        healthy = [
            f"{self.simulator_url}/healthz",
            *(f"{emulator.url}/healthz" for emulator in self.gateways),
            f"{api}/healthz",
            f"{api}/readyz",
            f"{self.shop_url}/healthz",
        ]
        watched = [(f"{self.api_url}/chains/{slug}", b'"status":"active"') for slug in self.chains]
        return [(url, b"") for url in healthy] + watched

    def service_environment(self) -> dict[str, str]:
        """Return the settings of the API and the worker."""
        urls = {slug.upper(): chain.url for slug, chain in self.chains.items()}
        endpoints = {f"PAYINTENT_RPC_{slug}": url for slug, url in urls.items()}
        # A development chain signs for its own accounts.
        signers = {f"PAYINTENT_SIGNER_{slug}": url for slug, url in urls.items()}
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
                "PAYINTENT_PORTAL_BASE": self.portal_base,
                "PAYINTENT_SANDBOX": "true",
                "PAYINTENT_EDGE_SECRET": self.kept["edge_secret"],
                "PAYINTENT_EDGE_TRUSTED_PROXIES": "127.0.0.1",
                "PAYINTENT_CHECKOUT_PER_ADDRESS_PER_S": "0",
                "PAYINTENT_DRAIN_S": "0",  # there is no proxy in front of it
                "PAYINTENT_PACKAGES_DIR": self.packages_dir,
            }
            | {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        )

    async def register_chain(self, service: Service, dev_chains: DevChains, slug: str) -> DevChain:
        """Prepare a chain, and accept payments on it for all merchants."""
        merchants = [merchant["id"] for merchant in self.kept["merchants"]]
        registration = ChainRegistration(service, ACTOR)
        self.chains[slug] = await registration.settle(dev_chains, slug, merchants)
        return self.chains[slug]

    def simulator_environment(self) -> dict[str, str]:
        """Return the settings of the simulator: its account and its time scale."""
        return {
            "SIM_ACCOUNTS": json.dumps([self.kept["simulator"]]),
            "SIM_TIME_SCALE": f"{self.time_scale:g}",
        }

    def gateway_children(self) -> list[ChildProcess]:
        """Return the processes of all emulators except the simulator."""
        kept = self.kept["gateways"]
        return [
            emulator.child(kept[emulator.provider], self.api_url, self.time_scale)
            for emulator in self.gateways
        ]

    def shop_environment(self) -> dict[str, str]:
        """Return the settings of the shop: the address of the API and its merchant's secrets."""
        merchant = self.kept["merchants"][0]
        return {
            "SHOP_API_URL": self.api_url,
            "SHOP_API_KEY": merchant["api_key"],
            "SHOP_CALLBACK_SECRET": merchant["callback_secret"],
            "SHOP_PUBLIC_URL": self.shop_url,
        }

    def description(self) -> dict[str, Any]:
        """Describe the sandbox for testers: the content of `dev.json`."""
        return {
            "api_url": self.api_url,
            "checkout_base": self.checkout_base,
            "operator_url": self.operator_url,
            "operator_token": self.kept["operator_token"],
            "operators": self.kept["operators"],
            "metrics_urls": [
                f"http://127.0.0.1:{port}/metrics"
                for port in (self.ports.operator, self.ports.metrics)
            ],
            "shop_url": self.shop_url,
            "simulator_url": self.simulator_url,
            "gateways": {emulator.provider: {"url": emulator.url} for emulator in self.gateways},
            "sim_time_scale": self.time_scale,
            "database_url": self.database_url,
            "edge": {
                "country_header": "CloudFront-Viewer-Country",
                "secret_header": "X-Edge-Secret",
                "secret": self.kept["edge_secret"],
            },
            "merchants": self.kept["merchants"],
            "portal": {"url": self.portal_base, **self.portal_links},
            "chains": dev_chains.describe_all(self.chains),
        }


async def prepare_installation(
    var_dir: Path, ports: Ports, database_url: str, dev_chains: DevChains
) -> SandboxInstallation:
    """Migrate the database, and add missing objects. Later starts add only new sign-in links."""
    stored = _StoredSecrets(var_dir / "sandbox.json")
    installation = SandboxInstallation(
        ports=ports,
        database_url=database_url,
        kept=stored.kept,
        time_scale=read_time_scale(TIME_SCALE),
    )
    await migrations_runner.migrate(database_url)
    running = {slug: dev_chains.url(slug) for slug in dev_chains.running}
    service = await open_service(_settings(installation, running))
    try:
        await _provision_gateway(service, installation)
        stored.save()
        for gateway in installation.gateways:
            await gateway.settle(service, ACTOR, installation.kept["gateways"][gateway.provider])
            stored.save()
        for slug in dev_chains.running:
            await installation.register_chain(service, dev_chains, slug)
        await _provision(service, installation, stored)
    finally:
        await service.close()
    return installation


async def open_installed_service(installation: SandboxInstallation) -> Service:
    """Open the service in this process, with the sandbox's settings."""
    return await open_service(
        _settings(installation, {slug: chain.url for slug, chain in installation.chains.items()})
    )


class _StoredSecrets:
    """The sandbox's secrets and ids, in a file that only its owner can read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.kept: dict[str, Any] = json.loads(path.read_text()) if path.exists() else _secrets()
        # The file may come from a version that had only the simulator and no refunds.
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


def _settings(installation: SandboxInstallation, endpoints: Mapping[str, str]) -> Settings:
    return Settings.model_validate(
        {
            "database_url": installation.database_url,
            "pepper": installation.kept["pepper"],
            "keyring": installation.kept["keyring"],
            "api_base": installation.api_url,
            "checkout_base": installation.checkout_base,
            "portal_base": installation.portal_base,
            "sandbox": True,
        }
        | {f"rpc_{slug}": url for slug, url in endpoints.items()}
    )


async def _provision(
    service: Service, installation: SandboxInstallation, stored: _StoredSecrets
) -> None:
    await _provision_operators(service, installation.kept, stored)
    for index, name in enumerate(_MERCHANTS):
        callback_url = f"{installation.shop_url}/webhooks" if index == 0 else None
        if index < len(installation.kept["merchants"]):
            await _move(service, installation.kept["merchants"][index], callback_url)
        else:
            installation.kept["merchants"].append(await _create(service, name, callback_url))
        stored.save()
        merchant_id: int = installation.kept["merchants"][index]["id"]
        await _offer(service, installation, merchant_id)
        if stored.is_older:
            await service.run_operation(
                SetMerchantProfile(merchant_id=merchant_id, auto_refund=True), ACTOR
            )
    shop = SetMerchantProfile(
        merchant_id=installation.kept["merchants"][0]["id"],
        return_url=f"{installation.shop_url}/orders",
        # The shop's pages embed the checkout, and the shops in `examples/` use the second origin.
        allowed_origins=[installation.shop_url, "http://127.0.0.1:3000"],
    )
    await service.run_operation(shop, ACTOR)
    await _provision_test_side(service, installation.kept["merchants"][0])
    stored.save()
    await _invite_members(service, installation)


async def _provision_test_side(service: Service, merchant: dict[str, Any]) -> None:
    """Issue a test key, which creates the test merchant. Later starts reuse both."""
    if "test" in merchant:
        return
    issue = IssueApiKey(merchant_id=merchant["id"], name="test", test=True)
    issued = await service.run_operation(issue, ACTOR)
    merchant["test"] = {
        "merchant_id": issued.merchant_id,
        "api_key": issued.api_key,
        "callback_secret": issued.callback_secret,
    }


async def _invite_members(service: Service, installation: SandboxInstallation) -> None:
    """Give the first merchant a member of each role, with a new link at every start."""
    for role in MemberRole:
        invitation = InviteMember(
            merchant_id=installation.kept["merchants"][0]["id"],
            email=f"{role}@nimbus.example",
            role=role,
        )
        invited = await service.run_operation(invitation, ACTOR)
        assert invited.link is not None  # noqa: S101 - the sandbox sends no mail
        installation.portal_links[role] = invited.link


async def _provision_operators(
    service: Service, kept: dict[str, Any], stored: _StoredSecrets
) -> None:
    """Issue an operator token for each role, and one for a second admin, who can approve."""
    # A version without roles had a single operator.
    if kept["operator_token"] is not None and not kept["operators"]:
        kept["operators"] = [{"name": "dev", "role": "admin", "token": kept["operator_token"]}]
    existing = {operator["name"]: operator for operator in kept["operators"]}
    for name, role in _OPERATORS.items():
        if name not in existing:
            new = IssueOperatorToken(name=name, role=role, days=TOKEN_DAYS_MAX)
            issued = await service.run_operation(new, ACTOR)
            kept["operators"].append({"name": name, "role": role, "token": issued.token})
            stored.save()
    for token in await service.run_operation(ListOperatorTokens(), ACTOR):
        if token.name in existing and token.revoked_at is None:
            extension = ExtendToken(public_id=token.public_id, days=TOKEN_DAYS_MAX)
            await service.run_operation(extension, ACTOR)
    kept["operator_token"] = kept["operators"][0]["token"]


async def _provision_gateway(service: Service, installation: SandboxInstallation) -> None:
    url, credentials = installation.simulator_url, installation.kept["simulator"]
    if installation.kept["account_id"] is None:
        new = AddAccount(provider="simulator", base_url=url, credentials=credentials)
        installation.kept["account_id"] = (await service.run_operation(new, ACTOR)).id
    else:  # ports may change between starts
        moved = ChangeAccount(
            account_id=installation.kept["account_id"], base_url=url, credentials=credentials
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


async def _offer(service: Service, installation: SandboxInstallation, merchant_id: int) -> None:
    for gateway in installation.gateways:
        kept = installation.kept["gateways"][gateway.provider]
        await gateway.offer(service, ACTOR, kept, merchant_id)


async def _move(service: Service, merchant: dict[str, Any], callback_url: str | None) -> None:
    if merchant["callback_url"] != callback_url:
        merchant["callback_url"] = callback_url
        moved = SetCallbackUrl(merchant_id=merchant["id"], callback_url=callback_url)
        await service.run_operation(moved, ACTOR)
