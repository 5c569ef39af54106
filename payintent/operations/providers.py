"""Providers: on or off for everybody, and what they are called outside."""

import re
from typing import ClassVar

from payintent.domain.errors import Code, Refused
from payintent.operations.base import Change, Desk, Read
from payintent.operations.validation import told
from payintent.storage import accounts, gateway_outages
from payintent.storage.accounts import Provider
from payintent.storage.database import Tx
from payintent.storage.gateway_outages import Down

_WIRE_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}", re.ASCII)


class ListProviders(Read[list[Provider]], frozen=True, kw_only=True):
    """List providers, and whether they are on."""

    action: ClassVar[str] = "provider.list"

    async def read(self, desk: Desk) -> list[Provider]:
        """Give them."""
        return await accounts.providers(desk.database)


class ListOutages(Read[list[Down]], frozen=True, kw_only=True):
    """List accounts whose gateway does not answer: nothing new is tried there for a while."""

    action: ClassVar[str] = "provider.health"

    async def read(self, desk: Desk) -> list[Down]:
        """Give them; there are none where all is well."""
        return await gateway_outages.listed(desk.database)


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


class RenameProvider(Change[Provider], frozen=True, kw_only=True):
    """Give a provider another name outside; selections that were made keep the old one."""

    action: ClassVar[str] = "provider.rename"
    provider: str
    wire_name: str

    async def check(self, desk: Desk) -> None:
        """Refuse a name that could not stand on the wire."""
        del desk
        if not _WIRE_NAME.fullmatch(self.wire_name):
            raise Refused(Code.BAD_REQUEST, "wire_name has 1 to 32 small letters, digits, _ and -")

    async def apply(self, desk: Desk, tx: Tx) -> Provider:
        """Write it."""
        del desk
        found = await accounts.rename_provider(tx, self.provider, self.wire_name)
        if found is None:
            raise Refused(Code.NOT_FOUND, f"no provider {told(self.provider)}")
        return found


async def _switch(tx: Tx, name: str, *, enabled: bool) -> Provider:
    found = await accounts.switch_provider(tx, name, enabled=enabled)
    if found is None:
        raise Refused(Code.NOT_FOUND, f"no provider {told(name)}")
    return found
