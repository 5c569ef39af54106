"""Providers: on or off for everybody."""

from typing import ClassVar

from payintent.domain.errors import Code, Refused
from payintent.operation.desk import Change, Desk, Read
from payintent.storage import accounts
from payintent.storage.accounts import Provider
from payintent.storage.database import Tx


class ListProviders(Read[list[Provider]], frozen=True, kw_only=True):
    """List providers, and whether they are on."""

    action: ClassVar[str] = "provider.list"

    async def read(self, desk: Desk) -> list[Provider]:
        """Give them."""
        return await accounts.providers(desk.database)


class EnableProvider(Change[Provider], frozen=True, kw_only=True):
    """Turn a provider on."""

    action: ClassVar[str] = "provider.enable"
    provider: str

    async def apply(self, desk: Desk, tx: Tx) -> Provider:
        """Write it."""
        del desk
        return await _switch(tx, self.provider, enabled=True)


class DisableProvider(Change[Provider], frozen=True, kw_only=True):
    """Turn a provider off: no method of it is offered, what runs there ends."""

    action: ClassVar[str] = "provider.disable"
    provider: str

    async def apply(self, desk: Desk, tx: Tx) -> Provider:
        """Write it."""
        del desk
        return await _switch(tx, self.provider, enabled=False)


async def _switch(tx: Tx, name: str, *, enabled: bool) -> Provider:
    found = await accounts.switch_provider(tx, name, enabled=enabled)
    if found is None:
        raise Refused(Code.NOT_FOUND, f"no provider {name!r}")
    return found
