"""Providers: enabled or not for all merchants, and their names in the API."""

import re
from typing import Annotated, ClassVar

from payintent.domain.errors import ErrorCode, RefusedError
from payintent.operations.base import ChangeOperation, OperationContext, ReadOperation
from payintent.operations.fields import argument
from payintent.operations.validation import quote_input
from payintent.storage import accounts, gateway_outages
from payintent.storage.accounts import Provider
from payintent.storage.database import Tx
from payintent.storage.gateway_outages import GatewayOutage

_WIRE_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}", re.ASCII)
_Provider = Annotated[str, argument("As `provider list` shows it, such as stripe.", name="name")]


class ListProviders(ReadOperation[list[Provider]], frozen=True, kw_only=True):
    """List providers, and whether they are on."""

    action: ClassVar[str] = "provider.list"
    columns = ("name", "wire_name", "enabled", "changed_at")

    async def read(self, context: OperationContext) -> list[Provider]:
        """Return all providers of this installation."""
        return await accounts.list_providers(context.database)


class ListGatewayOutages(ReadOperation[list[GatewayOutage]], frozen=True, kw_only=True):
    """List accounts whose gateway does not answer, and until when none is called."""

    action: ClassVar[str] = "provider.health"
    columns = ("account_id", "provider", "name", "channel", "since", "until", "trips")

    async def read(self, context: OperationContext) -> list[GatewayOutage]:
        """Return the outages, oldest first; none where every gateway answers."""
        return await gateway_outages.list_outages(context.database)


class EnableProvider(ChangeOperation[Provider], frozen=True, kw_only=True):
    """Turn a provider on."""

    action: ClassVar[str] = "provider.enable"
    provider: _Provider

    async def apply(self, context: OperationContext, tx: Tx) -> Provider:
        """Enable the provider; raise `NOT_FOUND` for an unknown one."""
        del context
        return await _switch(tx, self.provider, enabled=True)


class DisableProvider(ChangeOperation[Provider], frozen=True, kw_only=True):
    """Turn a provider off: no method of it is offered, what runs there ends."""

    action: ClassVar[str] = "provider.disable"
    is_destructive: ClassVar[bool] = True
    provider: _Provider

    async def apply(self, context: OperationContext, tx: Tx) -> Provider:
        """Disable the provider; raise `NOT_FOUND` for an unknown one."""
        del context
        return await _switch(tx, self.provider, enabled=False)


class RenameProvider(ChangeOperation[Provider], frozen=True, kw_only=True):
    """Give a provider another name outside; selections that were made keep the old one."""

    action: ClassVar[str] = "provider.rename"
    provider: _Provider
    wire_name: Annotated[str, argument("What merchants and buyers are shown from now on.")]

    async def check(self, context: OperationContext) -> None:
        """Refuse a name that has not the form of one in the API."""
        del context
        if not _WIRE_NAME.fullmatch(self.wire_name):
            raise RefusedError(
                ErrorCode.BAD_REQUEST, "wire_name has 1 to 32 small letters, digits, _ and -"
            )

    async def apply(self, context: OperationContext, tx: Tx) -> Provider:
        """Rename the provider; raise `NOT_FOUND` for an unknown one."""
        del context
        found = await accounts.rename_provider(tx, self.provider, self.wire_name)
        if found is None:
            raise RefusedError(ErrorCode.NOT_FOUND, f"no provider {quote_input(self.provider)}")
        return found


async def _switch(tx: Tx, name: str, *, enabled: bool) -> Provider:
    found = await accounts.set_provider_enabled(tx, name, enabled=enabled)
    if found is None:
        raise RefusedError(ErrorCode.NOT_FOUND, f"no provider {quote_input(name)}")
    return found
