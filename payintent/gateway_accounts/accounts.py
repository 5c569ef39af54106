"""Decrypt the credentials of gateway accounts, and call gateways with them."""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from payintent.core.access import RateLimit
from payintent.core.addresses import parse_web_origin
from payintent.db.database import Database
from payintent.gateway_accounts import store as account_store
from payintent.gateway_accounts.buyer_calls import BuyerCalls
from payintent.gateway_accounts.calls import GatewayCall, GatewayCallLog, GatewayRequestKind
from payintent.gateway_accounts.health import GatewayChannel, GatewayHealth, is_too_slow
from payintent.gateways.port import (
    AccountCheck,
    AccountProblem,
    Gateway,
    GatewayAccount,
    GatewayCapabilities,
    OutcomeUnknown,
)
from payintent.runtime.caches import TtlMap
from payintent.runtime.encryption import Encryption, decrypt_credentials
from payintent.runtime.waiting import Waiters, release_slot

R = TypeVar("R")
_CACHE_TTL_S = 5.0
_CACHE_SIZE = 1_000


@dataclass(frozen=True, slots=True)
class GatewayConnection:
    """An account with decrypted credentials, and its gateway's adapter."""

    account: GatewayAccount
    gateway: Gateway


class GatewayAccounts:
    """Looks up accounts and adapters, calls gateways and records the results."""

    def __init__(
        self,
        database: Database,
        encryption: Encryption,
        gateways: Mapping[str, Gateway],
        buyer_call_limit: RateLimit | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._encryption = encryption
        self.gateways = gateways
        self.health = GatewayHealth(database, monotonic)
        self.log = GatewayCallLog(database, monotonic)
        local_providers = {
            name for name, gateway in gateways.items() if not gateway.capabilities.remote
        }
        self.buyer_calls = BuyerCalls(database, buyer_call_limit, local_providers, monotonic)
        self._waiters = Waiters()
        self._accounts: TtlMap[int, GatewayAccount] = TtlMap(_CACHE_TTL_S, _CACHE_SIZE, monotonic)

    @property
    def providers(self) -> frozenset[str]:
        return frozenset(self.gateways)

    def gateway(self, provider: str) -> Gateway | None:
        return self.gateways.get(provider)

    def capabilities(self, provider: str) -> GatewayCapabilities | None:
        gateway = self.gateways.get(provider)
        return gateway.capabilities if gateway else None

    async def get_unavailable_ids(self) -> frozenset[int]:
        """Return the ids of accounts whose session circuit breaker is open."""
        return frozenset(
            account_id
            for account_id, channel in await self.health.get_unavailable_channels()
            if channel is GatewayChannel.SESSIONS
        )

    async def connect(self, account_id: int, provider: str) -> GatewayConnection | None:
        """Return a provider's account with its adapter, or None if either is missing."""
        account, gateway = await self.get(account_id), self.gateway(provider)
        if account is None or gateway is None or account.provider != provider:
            return None
        return GatewayConnection(account, gateway)

    async def call(
        self,
        call: GatewayCall,
        request: Callable[[Gateway, GatewayAccount], Awaitable[R]],
    ) -> R | OutcomeUnknown:
        """Call a gateway, and record for all processes whether it responded.

        Calls that do not use the network are not recorded.
        """
        connection = await self.connect(call.account_id, call.provider)
        if connection is None:
            return OutcomeUnknown(detail="the account or its adapter is missing")
        channel = call.kind.channel
        if not _is_remote(call.kind, connection.gateway.capabilities):
            return await request(connection.gateway, connection.account)
        release_slot()
        started_s = self.log.now_s()
        with self._waiters.count(call.account_id) as other_call_count:
            result = await request(connection.gateway, connection.account)
        self.log.add(call, result, started_s)
        duration_s = self.log.now_s() - started_s
        # Refunds are exempt, because slow refunds do not keep buyers waiting.
        is_slow = channel is GatewayChannel.SESSIONS and is_too_slow(duration_s, other_call_count)
        slow_duration_s = duration_s if is_slow else None
        await self.health.record_result(call.account_id, channel, result, slow_duration_s)
        return result

    async def check(self, account_id: int, provider: str) -> AccountCheck:
        """Test an account with a harmless request, which does not affect the circuit breaker."""
        connection = await self.connect(account_id, provider)
        if connection is None:
            return AccountCheck(
                problem=AccountProblem.OTHER_GATEWAY,
                detail=f"no adapter for {provider} is installed",
            )
        account = connection.account
        if mismatch := connection.gateway.capabilities.describe_mode_mismatch(account):
            return AccountCheck(problem=AccountProblem.CREDENTIALS, detail=mismatch)
        release_slot()
        return await connection.gateway.check_account(account)

    async def get_page_origin(self, account_id: int) -> str | None:
        """Return the origin of the account's payment pages, or None for an unknown account."""
        account = await self.get(account_id)
        gateway = account and self.gateway(account.provider)
        return (
            parse_web_origin(gateway.capabilities.page_url(account))
            if account and gateway
            else None
        )

    async def get(self, account_id: int) -> GatewayAccount | None:
        cached_account = self._accounts.get(account_id)
        if cached_account is not None:
            return cached_account
        record = await account_store.get(self._database, account_id)
        if record is None:
            return None
        credentials_json, _ = decrypt_credentials(
            self._encryption, account_id, record.provider, record.base_url, record.sealed
        )
        credentials = msgspec.json.decode(credentials_json, type=dict[str, str])
        account = GatewayAccount(
            id=record.id,
            provider=record.provider,
            base_url=record.base_url,
            credentials=credentials,
            livemode=record.livemode,
        )
        self._accounts.set(account_id, account)
        return account


def _is_remote(kind: GatewayRequestKind, capabilities: GatewayCapabilities) -> bool:
    if kind.channel is GatewayChannel.REFUNDS:
        return capabilities.remote_refunds
    is_creation = kind is GatewayRequestKind.CREATE_SESSION
    return capabilities.remote and (capabilities.remote_creation or not is_creation)
