"""The composition root: database, secrets, gateways and ids become one service."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from payintent.address_checks import check_places
from payintent.config import Settings
from payintent.domain.errors import StorageDown
from payintent.domain.gateway import Gateway
from payintent.domain.web_origin import web_origin
from payintent.encryption import Secrets, read_secrets
from payintent.evm.refund_sender import Refunders, open_refunders
from payintent.gateways.ecpay.adapter import EcpayGateway
from payintent.gateways.http_client import Http
from payintent.gateways.onchain import GatewayContract
from payintent.gateways.simulator import SimulatorGateway
from payintent.gateways.stripe.adapter import StripeGateway
from payintent.gateways.twoc2p.adapter import TwoC2pGateway
from payintent.id_generator import Mint
from payintent.log import get
from payintent.onchain.watch_loop import WatchContext
from payintent.operations.base import Actor, Change, Desk, Read
from payintent.operations.keyring import check_secrets
from payintent.operations.registry import OPERATIONS
from payintent.operations.submit import perform, submit
from payintent.payments.create_refund import RefundDesk
from payintent.payments.fraud_screening import Screen
from payintent.payments.gateway_accounts import Accounts
from payintent.payments.inquire_sessions import Janitor
from payintent.payments.policy_cache import Policies
from payintent.payments.select_quote import Places
from payintent.payments.send_refund import Submitter
from payintent.storage.database import Database
from payintent.storage.event_notify import Wake
from payintent.storage.onchain.pending_transfers import ChainLedger
from payintent.storage.proposals import Proposal

R = TypeVar("R")
_log = get("service")
_OPEN_WAIT_S = 0.5
_OPEN_TRIES_MAX = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Everything a process needs to serve; made once, by `open_service`."""

    settings: Settings
    database: Database
    secrets: Secrets
    mint: Mint
    accounts: Accounts
    policies: Policies
    http: Http
    refunders: Refunders  # of the chains that have a signer
    wake: Wake

    @property
    def places(self) -> Places:
        """Say where providers and buyers find us again."""
        return Places(api_base=self.settings.api_base, checkout_base=self.settings.checkout_base)

    @property
    def screen(self) -> Screen:
        """Give what screens buyers for fraud."""
        return Screen(
            database=self.database,
            policies=self.policies,
            secrets=self.secrets,
            mint=self.mint,
        )

    @property
    def desk(self) -> Desk:
        """Give what operations work with."""
        return Desk(
            database=self.database,
            secrets=self.secrets,
            mint=self.mint,
            sandbox=self.settings.sandbox,
            providers=self.accounts.providers,
            credentials=self.accounts.credentials,
            repeatable_refunds=self._repeatable_refunds(),
            countries=self.accounts.countries,
            origins=self._origins(),
            endpoints=self.settings.endpoints,
            operations=OPERATIONS,
        )

    def _repeatable_refunds(self) -> frozenset[str]:
        """Name the providers that do a refund once for one id, however often they are told."""
        return frozenset(
            provider
            for provider in self.accounts.providers
            if (gateway := self.accounts.gateway(provider)) and gateway.capabilities.refunds_again
        )

    def _origins(self) -> dict[str, frozenset[str]]:
        """Say where accounts may be: at their gateways' own origins, and where settings say."""
        more = frozenset(filter(None, map(web_origin, self.settings.more_gateway_origins)))
        return {
            provider: gateway.capabilities.origins | more
            for provider in self.accounts.providers
            if (gateway := self.accounts.gateway(provider)) is not None
        }

    async def submit(self, operation: Read[R] | Change[R], actor: Actor) -> R | Proposal:
        """Do what an operator asks, or keep it until another person has approved."""
        return await submit(self.desk, operation, actor)

    async def perform(self, operation: Read[R] | Change[R], actor: Actor) -> R:
        """Do what an operator asks and may do alone."""
        return await perform(self.desk, operation, actor)

    @property
    def janitor(self) -> Janitor:
        """Give what asks providers about sessions."""
        return Janitor(
            database=self.database,
            accounts=self.accounts,
            mint=self.mint,
            authorising_patience=timedelta(hours=self.settings.authorising_patience_hours),
        )

    @property
    def refund_desk(self) -> RefundDesk:
        """Give what accepts refunds."""
        return RefundDesk(database=self.database, accounts=self.accounts, mint=self.mint)

    @property
    def submitter(self) -> Submitter:
        """Give what sends refunds to their gateways."""
        return Submitter(
            database=self.database,
            accounts=self.accounts,
            mint=self.mint,
            api_base=self.settings.api_base,
        )

    @property
    def watch_context(self) -> WatchContext:
        """Give what the watchers of chains work with."""
        return WatchContext(settings=self.settings, database=self.database, mint=self.mint)

    async def close(self) -> None:
        """Let go of everything."""
        await self.wake.close()
        await self.http.close()
        await self.refunders.close()
        await self.database.close()


async def open_service(
    settings: Settings, gateways: Mapping[str, Gateway] | None = None
) -> Service:
    """Wire a service; waits a minute for a database that is starting, refuses foreign secrets.

    Addresses that do not fit are refused before (`PlacesUnusableError`).

    `gateways` replaces the adapters of this installation, by provider.
    """
    check_places(settings)
    secrets = read_secrets(settings)
    database = Database(settings)
    await _open_patiently(database)
    http = Http(settings.gateway_timeout_s, settings.gateway_answer_bytes_max)
    wake = Wake(settings.database_direct_url or settings.database_url)
    database.on_event = wake.poke
    refunders = open_refunders(settings.signers, settings.endpoints)
    adapters = _adapters(http, database, settings, refunders)
    service = Service(
        settings=settings,
        database=database,
        secrets=secrets,
        mint=Mint(),
        accounts=Accounts(
            database,
            secrets,
            adapters if gateways is None else gateways,
            settings.buyer_calls,
        ),
        policies=Policies(database, settings.policy_cache_s),
        http=http,
        refunders=refunders,
        wake=wake,
    )
    try:
        await check_secrets(database, secrets)
    except BaseException:
        await service.close()
        raise
    return service


def _adapters(
    http: Http, database: Database, settings: Settings, refunders: Refunders
) -> dict[str, Gateway]:
    adapters: tuple[Gateway, ...] = (
        SimulatorGateway(http),
        EcpayGateway(http),
        StripeGateway(http),
        TwoC2pGateway(http),
        GatewayContract(ChainLedger(database), settings.api_base, refunders),
    )
    return {one.provider: one for one in adapters}


async def _open_patiently(database: Database) -> None:
    for remaining in range(_OPEN_TRIES_MAX, 0, -1):
        try:
            await database.open()
        except StorageDown:
            if remaining == 1:
                raise
            _log.warning("database_away", tries_left=remaining - 1)
            await asyncio.sleep(_OPEN_WAIT_S)
        else:
            return
