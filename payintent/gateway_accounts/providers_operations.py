"""Enable, disable and rename providers, and list their outages and failed requests."""

from typing import Annotated, ClassVar

from payintent.core.errors import BadRequestError, NotFoundError
from payintent.db.database import Tx
from payintent.gateway_accounts import store as account_store
from payintent.gateway_accounts.calls import FailedGatewayCall, list_failed_calls
from payintent.gateway_accounts.health import GatewayOutage, list_outages
from payintent.gateway_accounts.operations import is_hidden_gateway
from payintent.gateway_accounts.store import Provider
from payintent.gateways.packages import PROVIDER_NAME, PROVIDER_NAME_RULE
from payintent.operators.fields import (
    LIST_LIMIT_MAX,
    argument,
    check_list_limit,
    option,
    quote_input,
)
from payintent.operators.operation import ChangeOperation, OperationContext, ReadOperation

_Provider = Annotated[
    str, argument("The name shown by `provider list`, such as stripe.", name="name")
]


class ListProviders(ReadOperation[list[Provider]], frozen=True, kw_only=True):
    """List providers and whether they are enabled."""

    action: ClassVar[str] = "provider.list"
    columns = ("name", "wire_name", "enabled", "changed_at")

    async def read(self, context: OperationContext) -> list[Provider]:
        """List providers.

        Outside the sandbox, sandbox gateways are listed only if they have accounts. Accounts remain
        if a sandbox becomes a production installation.
        """
        providers = await account_store.list_providers(context.database)
        accounts = await account_store.list_accounts(context.database, LIST_LIMIT_MAX)
        visible_names = {account.provider for account in accounts}
        return [
            provider
            for provider in providers
            if provider.name in visible_names or not is_hidden_gateway(context, provider.name)
        ]


class ListGatewayOutages(ReadOperation[list[GatewayOutage]], frozen=True, kw_only=True):
    """List accounts with an open circuit breaker, and when each may be probed."""

    action: ClassVar[str] = "provider.health"
    columns = ("account_id", "provider", "name", "channel", "since", "until", "trips")

    async def read(self, context: OperationContext) -> list[GatewayOutage]:
        return await list_outages(context.database)


class ListGatewayErrors(ReadOperation[list[FailedGatewayCall]], frozen=True, kw_only=True):
    """List the latest requests that a gateway rejected or throttled, or that got no response."""

    action: ClassVar[str] = "provider.errors"
    columns = ("at", "account_id", "request", "outcome", "detail", "duration_ms", "payment_id")
    account_id: Annotated[int | None, option("Only requests for this account.", name="account")] = (
        None
    )
    limit: Annotated[
        int, option("Maximum number of requests per account.", min=1, max=LIST_LIMIT_MAX)
    ] = 20

    async def read(self, context: OperationContext) -> list[FailedGatewayCall]:
        check_list_limit(self.limit)
        return await list_failed_calls(context.database, self.account_id, self.limit)


class EnableProvider(ChangeOperation[Provider], frozen=True, kw_only=True):
    """Enable a provider."""

    action: ClassVar[str] = "provider.enable"
    provider: _Provider

    async def apply(self, context: OperationContext, tx: Tx) -> Provider:
        provider = await account_store.set_provider_enabled(tx, self.provider, enabled=True)
        return _require_provider(provider, self.provider)


class DisableProvider(ChangeOperation[Provider], frozen=True, kw_only=True):
    """Disable a provider. Buyers can no longer select its methods; open sessions continue."""

    action: ClassVar[str] = "provider.disable"
    is_destructive: ClassVar[bool] = True
    provider: _Provider

    async def apply(self, context: OperationContext, tx: Tx) -> Provider:
        provider = await account_store.set_provider_enabled(tx, self.provider, enabled=False)
        return _require_provider(provider, self.provider)


class RenameProvider(ChangeOperation[Provider], frozen=True, kw_only=True):
    """Change a provider's public name. The name in existing selections does not change."""

    action: ClassVar[str] = "provider.rename"
    provider: _Provider
    wire_name: Annotated[str, argument("The new name for merchants and buyers.")]

    async def check(self, context: OperationContext) -> None:
        if not PROVIDER_NAME.fullmatch(self.wire_name):
            raise BadRequestError(f"wire_name must be {PROVIDER_NAME_RULE}")

    async def apply(self, context: OperationContext, tx: Tx) -> Provider:
        provider = await account_store.rename_provider(tx, self.provider, self.wire_name)
        return _require_provider(provider, self.provider)


def _require_provider(provider: Provider | None, name: str) -> Provider:
    if provider is None:
        raise NotFoundError(f"no provider {quote_input(name)}")
    return provider
