"""Providers: enabled or not for all merchants, and their names in the API."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, ClassVar

from payintent.domain import ids
from payintent.domain.errors import BadRequestError, NotFoundError
from payintent.domain.gateway import PROVIDER_NAME, PROVIDER_NAME_FORM
from payintent.operations.base import ChangeOperation, OperationContext, ReadOperation
from payintent.operations.fields import argument, option
from payintent.operations.validation import LISTED_MAX, check_list_limit, quote_input
from payintent.storage import accounts, gateway_calls, gateway_outages
from payintent.storage.accounts import Provider
from payintent.storage.database import Tx
from payintent.storage.gateway_calls import FailedGatewayCall
from payintent.storage.gateway_outages import GatewayOutage

_Provider = Annotated[str, argument("As `provider list` shows it, such as stripe.", name="name")]


class ListProviders(ReadOperation[list[Provider]], frozen=True, kw_only=True):
    """List providers, and whether they are on."""

    action: ClassVar[str] = "provider.list"
    columns = ("name", "wire_name", "enabled", "changed_at")

    async def read(self, context: OperationContext) -> list[Provider]:
        return await accounts.list_providers(context.database)


class ListGatewayOutages(ReadOperation[list[GatewayOutage]], frozen=True, kw_only=True):
    """List accounts whose gateway does not answer, and until when none is called."""

    action: ClassVar[str] = "provider.health"
    columns = ("account_id", "provider", "name", "channel", "since", "until", "trips")

    async def read(self, context: OperationContext) -> list[GatewayOutage]:
        """Return the outages, oldest first; none where every gateway answers."""
        return await gateway_outages.list_outages(context.database)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayErrorView:
    """A request that a gateway did not do: rejected, throttled, without an answer, or not sent."""

    at: datetime
    account_id: int
    provider: str
    request: str
    payment_id: str | None
    outcome: str
    detail: str  # the status and the gateway's own code, or why there is no answer
    duration_ms: int


class ListGatewayErrors(ReadOperation[list[GatewayErrorView]], frozen=True, kw_only=True):
    """List the last requests that gateways rejected, throttled or did not answer."""

    action: ClassVar[str] = "provider.errors"
    columns = ("at", "account_id", "request", "outcome", "detail", "duration_ms", "payment_id")
    account_id: Annotated[int | None, option("Only this account's.", name="account")] = None
    limit: Annotated[int, option("How many of each account.", min=1, max=LISTED_MAX)] = 20

    async def read(self, context: OperationContext) -> list[GatewayErrorView]:
        check_list_limit(self.limit)
        errors = await gateway_calls.list_errors(context.database, self.account_id, self.limit)
        return list(map(_view, errors))


def _view(error: FailedGatewayCall) -> GatewayErrorView:
    return GatewayErrorView(
        at=error.at,
        account_id=error.account_id,
        provider=error.provider,
        request=error.request,
        payment_id=error.payment_id and ids.format_id(ids.PAYMENT, error.payment_id),
        outcome=error.outcome,
        detail=error.detail,
        duration_ms=error.duration_ms,
    )


class EnableProvider(ChangeOperation[Provider], frozen=True, kw_only=True):
    """Turn a provider on."""

    action: ClassVar[str] = "provider.enable"
    provider: _Provider

    async def apply(self, context: OperationContext, tx: Tx) -> Provider:
        return await _switch(tx, self.provider, enabled=True)


class DisableProvider(ChangeOperation[Provider], frozen=True, kw_only=True):
    """Turn a provider off: no method of it is offered, what runs there ends."""

    action: ClassVar[str] = "provider.disable"
    is_destructive: ClassVar[bool] = True
    provider: _Provider

    async def apply(self, context: OperationContext, tx: Tx) -> Provider:
        return await _switch(tx, self.provider, enabled=False)


class RenameProvider(ChangeOperation[Provider], frozen=True, kw_only=True):
    """Give a provider another name outside; selections that were made keep the old one."""

    action: ClassVar[str] = "provider.rename"
    provider: _Provider
    wire_name: Annotated[str, argument("What merchants and buyers are shown from now on.")]

    async def check(self, context: OperationContext) -> None:
        if not PROVIDER_NAME.fullmatch(self.wire_name):
            raise BadRequestError(f"wire_name has {PROVIDER_NAME_FORM}")

    async def apply(self, context: OperationContext, tx: Tx) -> Provider:
        found = await accounts.rename_provider(tx, self.provider, self.wire_name)
        if found is None:
            raise NotFoundError(f"no provider {quote_input(self.provider)}")
        return found


async def _switch(tx: Tx, name: str, *, enabled: bool) -> Provider:
    found = await accounts.set_provider_enabled(tx, name, enabled=enabled)
    if found is None:
        raise NotFoundError(f"no provider {quote_input(name)}")
    return found
