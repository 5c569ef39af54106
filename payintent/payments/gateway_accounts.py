"""Provider accounts, opened: their credentials are read only here, and kept for a moment."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

import msgspec

from payintent.domain.gateway import Gateway, GatewayAccount
from payintent.domain.merchant import Acceptance, PaymentMethod
from payintent.domain.payable import common_countries
from payintent.domain.rate_limit import RateLimit
from payintent.encryption import Encryption, open_account
from payintent.payments.buyer_calls import BuyerCalls
from payintent.payments.gateway_health import GatewayChannel, GatewayHealth
from payintent.storage import accounts
from payintent.storage.database import Database

A = TypeVar("A", bound=Acceptance)
_KEPT_S = 5.0
_KEPT_MAX = 1_000


class GatewayAccounts:
    """Finds accounts and the gateways that speak for their providers, and knows who answers."""

    def __init__(
        self,
        database: Database,
        encryption: Encryption,
        gateways: Mapping[str, Gateway],
        calls: RateLimit | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._secrets = encryption
        self._gateways = gateways
        self._monotonic = monotonic
        self.health = GatewayHealth(database, monotonic)
        local = {name for name, gateway in gateways.items() if not gateway.capabilities.remote}
        self.buyer_calls = BuyerCalls(database, calls, local)
        self._kept: dict[int, tuple[float, GatewayAccount]] = {}

    @property
    def providers(self) -> frozenset[str]:
        """Name the providers that this installation has adapters for."""
        return frozenset(self._gateways)

    @property
    def credentials(self) -> Mapping[str, frozenset[str]]:
        """Name the credentials that an account of each provider must hold."""
        return {name: gateway.capabilities.credentials for name, gateway in self._gateways.items()}

    @property
    def countries(self) -> Mapping[str, frozenset[str] | None]:
        """Name the countries where each provider's gateway takes payments; None: all."""
        return {name: gateway.capabilities.countries for name, gateway in self._gateways.items()}

    def gateway(self, provider: str) -> Gateway | None:
        """Give the adapter of a provider, where this installation has one."""
        return self._gateways.get(provider)

    async def apply_capabilities(self, methods: Iterable[PaymentMethod]) -> list[PaymentMethod]:
        """Tell of methods what their gateways can do; those that do not answer take nothing."""
        down = {
            account_id
            for account_id, channel in await self.health.unavailable_channels()
            if channel is GatewayChannel.SESSIONS
        }
        return [
            replace(method, account_enabled=False)
            if method.account_id in down
            else self.narrowed(method)
            for method in methods
        ]

    def narrowed(self, method: A) -> A:
        """Narrow a method to what its gateway can do; one without a gateway takes nothing."""
        gateway = self._gateways.get(method.provider)
        if gateway is None:
            return replace(method, account_enabled=False)
        capabilities = gateway.capabilities
        return replace(
            method,
            decimals=capabilities.decimals,
            countries=common_countries(method.countries, capabilities.countries),
        )

    async def get(self, account_id: int) -> GatewayAccount | None:
        """Read an account and its credentials."""
        kept = self._kept.get(account_id)
        if kept and kept[0] > self._monotonic():
            return kept[1]
        sealed = await accounts.get(self._database, account_id)
        if sealed is None:
            return None
        opened, _ = open_account(
            self._secrets, account_id, sealed.provider, sealed.base_url, sealed.sealed
        )
        credentials = msgspec.json.decode(opened, type=dict[str, str])
        account = GatewayAccount(
            id=sealed.id,
            provider=sealed.provider,
            base_url=sealed.base_url,
            credentials=credentials,
        )
        if len(self._kept) >= _KEPT_MAX:
            self._kept.clear()
        self._kept[account_id] = (self._monotonic() + _KEPT_S, account)
        return account
