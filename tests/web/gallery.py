"""Serve a checkout, and create its states on request."""

import os
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg

from payintent.db import migrations_runner
from payintent.evm.refund_sender import RpcRefundSender
from payintent.fraud.operations import AddFraudRule
from payintent.gateway_accounts.operations import AddAccount
from payintent.gateways.port import (
    GatewayAccount,
    GatewaySessionRequest,
    SessionCreated,
    SessionRejected,
)
from payintent.merchants.access_operations import IssueApiKey
from payintent.merchants.activation import SuspendMerchant
from payintent.merchants.methods_operations import AddPaymentMethod
from payintent.merchants.model import FeeMode, TaxManager
from payintent.merchants.operations import SetMerchantProfile
from payintent.merchants.taxes import SetTaxRate
from payintent.onchain.operations import SetChain
from payintent.payments.model import Payment
from payintent.runtime.settings import Settings
from payintent_sandbox.chains.anvil import Anvil
from payintent_sandbox.chains.deploy import PLANS
from tests.support.chain import fetched_anvil
from tests.support.chain_refunds import RefundWorld
from tests.support.chain_refunds import refunding as open_refunding
from tests.support.contracts import add_contract, contract_service, register_factory
from tests.support.deposits import DepositGround, add_factory
from tests.support.fakes import FakeGateway
from tests.support.onchain import SLUG, ChainWorld, chain_world
from tests.support.ports import free_port
from tests.support.running_service import serving
from tests.support.world import ALL_FIAT, World, make_world
from tests.web.external_resources import serve_external_sites

_KEY = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
_PAY = "https://bank.example/pay"
_FEES_USD = {"ethereum": "0.5", "bsc": "0.004"}
_NAMED = (
    *(("card", "Card"), ("qr", "PromptPay"), ("redirect", "TrueMoney"), ("redirect", "LINE Pay")),
    *(("redirect", "ShopeePay"), ("redirect", "Konbini"), ("redirect", "Other ways")),
)
BANNED = "banned-buyer"
_MOVED_S = 1801  # advances the clock past the deadline of the earlier payments
PRODUCT = (
    '{"order_id":"A-1009","product":{"name":"The Sea, the Sea","detail":"Paperback, first edition",'
    '"vendor":"Penguin","quantity":2,"image":"%s/picture.png"}}'
)


class StagedGateway(FakeGateway):
    """A gateway that selects the buyer's next action by the account's URL."""

    def __init__(self, origin: str) -> None:
        super().__init__()
        self._actions: Mapping[str, dict[str, Any]] = _actions(origin)

    async def create_session(
        self, account: GatewayAccount, request: GatewaySessionRequest
    ) -> SessionCreated | SessionRejected:
        action = self._actions.get(urlsplit(account.base_url).path.strip("/"))
        if action is None:
            return SessionRejected(detail="not here")
        return SessionCreated(reference=f"ref-{request.session_id}", next_action=action)


def _actions(origin: str) -> dict[str, dict[str, Any]]:
    """Return the possible next actions of a gateway, by name."""
    fields = {"MerchantTradeNo": "P4yFJ8s2LqPz0aVb", "TotalAmount": "1590", "Sign": "6C51C9E6"}
    onward = {"type": "redirect", "redirect": {"url": _PAY, "method": "GET", "fields": {}}}
    return {
        "": onward,
        "redirect": onward,
        "qr": onward,
        "form": {"type": "redirect", "redirect": {"url": _PAY, "method": "POST", "fields": fields}},
        "card": {
            "type": "embedded_card",
            "embedded_card": {
                "provider": "stripe",
                "script_url": f"{origin}/v3.js",
                "publishable_key": "pk_test_one",
                "client_secret": "pi_one_secret_two",
            },
        },
        "card-away": {
            "type": "embedded_card",
            "embedded_card": {
                "provider": "stripe",
                "script_url": f"{origin}/nothing.js",
                "publishable_key": "pk_test_one",
                "client_secret": "pi_one_secret_two",
            },
        },
        "wait": {"type": "wait", "wait": {"poll_after_ms": 2_000}},
    }


@dataclass
class Gallery:
    """The service, its merchants, and the surrounding servers."""

    plain: World  # only a card and a transfer
    shop: World  # a logo, a return URL, help, and every next action
    taxed: World  # fee and tax in addition to the amount
    bare: World  # without payment methods
    suspended: World
    broken: World  # the gateway rejects every session
    methods: Mapping[str, int]  # the shop's methods by next action
    origin: str  # of the surrounding servers
    base: str  # of the checkout's pages
    overdue: Mapping[str, Payment]  # expired before the gallery opened
    _stack: AsyncExitStack
    _ground: list[ChainWorld] = field(default_factory=list)
    _everything: list[World] = field(default_factory=list)
    _named: list[World] = field(default_factory=list)
    _deposits: list[DepositGround] = field(default_factory=list)
    _refunds: list[RefundWorld] = field(default_factory=list)
    _refund_senders: dict[str, RpcRefundSender] = field(default_factory=dict)

    async def everything(self) -> World:
        """Return a merchant with ten methods, including a token on two chains.

        The token can be paid from a wallet and to an address.
        """
        if not self._everything:
            ground = await self.ground()
            world = await _add_merchant(self.plain, "Nimbus Bazaar")
            await _complete_profile(world, self.origin, "US")
            await _offer_every_kind(world, self.shop)
            for slug, name in (("ethereum", "Ethereum"), ("bsc", "BNB Smart Chain")):
                await _offer_token(world, await add_contract(world, slug), "USDT", name)
                await _offer_token(world, await register_factory(world, slug), "USDT", name)
                await world.perform(SetChain(chain=slug, transfer_fee_usd=_FEES_USD[slug]))
            await _offer_token(world, ground.account_id, "NATIVED", "Native")
            self._everything.append(world)
        return self._everything[0]

    async def named(self) -> World:
        """Return a merchant with methods that have well-known names."""
        if not self._named:
            world = await _add_merchant(self.plain, "Nimbus Named")
            await _complete_profile(world, self.origin)
            account_id = await _add_account(self.shop, "redirect")
            for kind, label in _NAMED:
                await _offer(world, account_id, kind, label)
            self._named.append(world)
        return self._named[0]

    async def deposits(self) -> DepositGround:
        """Return a merchant that accepts payments to addresses on the same chain."""
        if not self._deposits:
            world = await _add_merchant(self.plain, "Nimbus Deposits")
            await self._allow_frames(world)
            ground = replace(await self.ground(), world=world, methods={}, moved_s=_MOVED_S)
            self._deposits.append(await add_factory(ground, "USDT"))
        return self._deposits[0]

    async def refunds(self) -> RefundWorld:
        """Return the refund sender for payments to addresses."""
        if not self._refunds:
            ground = (await self.deposits()).ground
            refund_world = open_refunding(ground, self._refund_senders)
            self._refunds.append(await self._stack.enter_async_context(refund_world))
        return self._refunds[0]

    async def test_side(self) -> World:
        """Return the shop's test merchant."""
        issued = await self.shop.perform(IssueApiKey(merchant_id=self.shop.merchant_id, test=True))
        return replace(self.shop, merchant_id=issued.merchant_id, api_key=issued.api_key)

    async def ground(self) -> ChainWorld:
        """Return a merchant that accepts tokens on a chain, which starts when it is first used."""
        if not self._ground:
            chain = Anvil(PLANS[SLUG].network_id, log=_log(self._stack), binary=fetched_anvil())
            url = chain.start()
            self._stack.callback(chain.stop)
            world = await _add_merchant(self.plain, "Nimbus Tokens")
            await _offer(world, world.account_id, "card", "Card")
            await self._allow_frames(world)
            entered = await self._stack.enter_async_context(chain_world(world, url))
            self._ground.append(entered)
        return self._ground[0]

    async def _allow_frames(self, world: World) -> None:
        await world.perform(
            SetMerchantProfile(merchant_id=world.merchant_id, allowed_origins=[self.origin])
        )


@asynccontextmanager
async def open_gallery(server_url: str) -> AsyncIterator[Gallery]:
    """Open a service on a new database of this PostgreSQL server."""
    async with AsyncExitStack() as stack:
        database_url = await stack.enter_async_context(own_database(server_url))
        origin = await stack.enter_async_context(serve_external_sites())
        port = free_port()
        settings = gallery_settings(database_url, f"http://127.0.0.1:{port}")
        gateway = StagedGateway(origin)
        refund_senders: dict[str, RpcRefundSender] = {}
        service = await stack.enter_async_context(
            contract_service(settings, gateway, refund_senders)
        )
        await stack.enter_async_context(serving(settings, service, port))
        gallery = await _fill(await make_world(service, gateway), origin, stack)
        yield replace(gallery, _refund_senders=refund_senders)


async def _fill(plain: World, origin: str, stack: AsyncExitStack) -> Gallery:
    shop = await _create_shop(plain, origin)
    overdue = await _create_overdue(plain)
    await plain.perform(AddFraudRule(kind="PAYER", value=BANNED))
    return Gallery(
        plain=plain,
        shop=shop,
        taxed=await _create_taxed(plain),
        bare=await _add_merchant(plain, "Nimbus Nowhere"),
        suspended=await _create_suspended(plain),
        broken=await _create_broken(plain),
        methods=await _offer_every_action(shop),
        origin=origin,
        base=plain.service.settings.checkout_base,
        overdue=overdue,
        _stack=stack,
    )


async def _create_suspended(world: World) -> World:
    suspended = await _add_merchant(world, "Nimbus at Rest")
    await world.perform(SuspendMerchant(merchant_id=suspended.merchant_id))
    return suspended


async def _create_overdue(world: World) -> dict[str, Payment]:
    """Create two payments, and advance the clock past their deadline."""
    waiting = await world.create()
    started = await world.create()
    await world.select(started)
    await world.move_clock(_MOVED_S)
    return {"waiting": waiting, "started": started}


async def _create_shop(world: World, origin: str) -> World:
    shop = await _add_merchant(world, "Nimbus Books")
    await _complete_profile(shop, origin)
    return shop


async def _complete_profile(world: World, origin: str, country: str = "TH") -> None:
    """Set all merchant details that a page can show."""
    await world.perform(
        SetMerchantProfile(
            merchant_id=world.merchant_id,
            logo_url=f"{origin}/logo.png",
            accent_colour="#6f42c1",
            terms_url=f"{origin}/shop?terms",
            support_url=f"{origin}/shop?help",
            return_url=f"{origin}/shop",
            allowed_origins=[origin],
            default_country=country,
        )
    )


async def _create_taxed(world: World) -> World:
    taxed = await _add_merchant(world, "Nimbus Taxed")
    await world.perform(SetTaxRate(country="TH", rate=Decimal("0.07")))
    await world.perform(
        SetMerchantProfile(
            merchant_id=taxed.merchant_id, default_country="TH", tax_manager=TaxManager.SERVICE
        )
    )
    fee = {"fee_mode": FeeMode.EXCLUSIVE, "fee_rate": Decimal("0.029")}
    taxed.card = await _offer(taxed, world.account_id, "card", "Card", **fee)
    taxed.transfer = await _offer(taxed, world.account_id, "redirect", "Bank transfer")
    return taxed


async def _create_broken(world: World) -> World:
    broken = await _add_merchant(world, "Nimbus Unlucky")
    broken.card = await _offer(broken, await _add_account(world, "nothing"), "card", "Card")
    return broken


async def _offer_every_action(shop: World) -> dict[str, int]:
    """Offer a method for every next action."""
    offered = {
        "card": ("card", "Card"),
        "redirect": ("redirect", "Bank transfer"),
        "form": ("redirect", "Convenience store"),
        "qr": ("qr", "PromptPay"),
        "wait": ("redirect", "Mobile banking"),
        "card-away": ("card", "Another card"),
    }
    return {
        name: await _offer(shop, await _add_account(shop, name), kind, label, position=position)
        for position, (name, (kind, label)) in enumerate(offered.items())
    }


async def _offer_every_kind(world: World, shop: World) -> None:
    sorts = {
        "Card": ("card", "card"),
        "Bank transfer": ("redirect", "redirect"),
        "PromptPay": ("qr", "qr"),
        "Convenience store": ("form", "redirect"),
        "TrueMoney": ("wait", "redirect"),
    }
    for position, (label, (path, kind)) in enumerate(sorts.items()):
        account_id = await _add_account(shop, path)
        await _offer(world, account_id, kind, label, position=position)


async def _offer_token(world: World, account_id: int, symbol: str, chain: str) -> None:
    await world.perform(
        AddPaymentMethod(
            merchant_id=world.merchant_id,
            account_id=account_id,
            kind="onchain",
            label=f"{symbol} on {chain}",
            currencies=[symbol],
            token=symbol,
        )
    )


async def _add_merchant(world: World, name: str) -> World:
    """Add a merchant without methods to the same service."""
    new = await world.add_merchant(name, methods="none")
    return replace(world, merchant_id=new.merchant.id, api_key=new.api_key, held=[])


async def _add_account(world: World, path: str) -> int:
    account = AddAccount(
        provider="fake",
        base_url=f"http://gateway.test/{path}",
        credentials={"signing_secret": world.signing_secret},
    )
    return (await world.perform(account)).id


async def _offer(world: World, account_id: int, kind: Any, label: str, **fields: Any) -> int:
    method = AddPaymentMethod(
        merchant_id=world.merchant_id,
        account_id=account_id,
        kind=kind,
        label=label,
        currencies=list(ALL_FIAT),
        **fields,
    )
    return (await world.perform(method)).id


@asynccontextmanager
async def own_database(server_url: str) -> AsyncIterator[str]:
    name = f"gallery_{uuid4().hex}"
    server = await asyncpg.connect(server_url)
    await server.execute(f'CREATE DATABASE "{name}"')
    url = urlunsplit(urlsplit(server_url)._replace(path=f"/{name}"))
    try:
        await migrations_runner.migrate(url)
        yield url
    finally:
        await server.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
        await server.close()


def gallery_settings(database_url: str, base: str) -> Settings:
    return Settings.model_validate(
        {
            "database_url": database_url,
            "pepper": _KEY,
            "keyring": f"test:{_KEY}",
            "checkout_base": f"{base}/c",
            "api_base": f"{base}/v1",
            # A passkey is bound to a host name, and 127.0.0.1 is not a host name.
            "portal_base": f"{base.replace('127.0.0.1', 'localhost')}/merchant",
            "sandbox": True,
            "database_connections_max": 8,
            "policy_cache_s": 0.0,
            "chain_watched_s": 86_400,  # no worker watches the chain
            "chain_behind_max_s": 0.0,
            # Only requests with X-Forwarded-For are rate limited.
            "edge_trusted_proxies": "127.0.0.1",
            "checkout_per_address_per_s": 1,
            "checkout_per_address_burst": 1,
        }
    )


def _log(stack: AsyncExitStack) -> Path:
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="payintent-gallery-"))
    return Path(folder) / "anvil.log"


def server_url() -> str:
    """Return the URL of the tests' PostgreSQL server."""
    return os.environ["TESTS_POSTGRES_URL"]
