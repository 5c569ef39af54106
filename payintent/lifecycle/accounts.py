"""Provider accounts, opened: their credentials are read only here, and kept for a moment."""

import time
from collections.abc import Callable, Mapping

import msgspec

from payintent.domain.gateway import Account, Gateway
from payintent.storage import accounts
from payintent.storage.database import Database
from payintent.storage.sealed import Secrets, account_place

_KEPT_S = 5.0
_KEPT_MAX = 1_000


class Accounts:
    """Finds accounts and the gateways that speak for their providers."""

    def __init__(
        self,
        database: Database,
        secrets: Secrets,
        gateways: Mapping[str, Gateway],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._secrets = secrets
        self._gateways = gateways
        self._monotonic = monotonic
        self._kept: dict[int, tuple[float, Account]] = {}

    @property
    def providers(self) -> frozenset[str]:
        """Name the providers that this installation has adapters for."""
        return frozenset(self._gateways)

    def gateway(self, provider: str) -> Gateway | None:
        """Give the adapter of a provider, where this installation has one."""
        return self._gateways.get(provider)

    async def open(self, account_id: int) -> Account | None:
        """Read an account and its credentials."""
        kept = self._kept.get(account_id)
        if kept and kept[0] > self._monotonic():
            return kept[1]
        sealed = await accounts.by_id(self._database, account_id)
        if sealed is None:
            return None
        credentials = msgspec.json.decode(
            self._secrets.open(sealed.sealed, account_place(account_id)), type=dict[str, str]
        )
        account = Account(
            id=sealed.id,
            provider=sealed.provider,
            base_url=sealed.base_url,
            credentials=credentials,
        )
        if len(self._kept) >= _KEPT_MAX:
            self._kept.clear()
        self._kept[account_id] = (self._monotonic() + _KEPT_S, account)
        return account
