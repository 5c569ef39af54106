"""Operations on gateway accounts. Their credentials are stored encrypted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Annotated, ClassVar

import msgspec

from payintent.core.access import Role
from payintent.core.addresses import parse_web_origin
from payintent.core.errors import BadRequestError, NotFoundError
from payintent.db.database import Executor, Tx
from payintent.db.encryption_keys import ensure_writing_key
from payintent.gateway_accounts import store as account_store
from payintent.gateway_accounts.accounts import GatewayAccounts
from payintent.gateway_accounts.store import AccountRecord, NewAccount
from payintent.gateways.port import GatewayAccount
from payintent.operators.fields import (
    LIST_LIMIT_MAX,
    OwnerId,
    Purpose,
    argument,
    check_list_limit,
    check_market,
    check_merchant,
    check_name,
    check_web_url,
    is_database_id,
    option,
    quote_input,
)
from payintent.operators.operation import (
    ChangeOperation,
    OperationContext,
    ReadOperation,
    copy_fields,
)
from payintent.runtime.encryption import make_account_context

_CREDENTIALS_MAX, _CREDENTIAL_CHARS_MAX = 20, 20_000


def check_credentials(credentials: Mapping[str, str]) -> None:
    if not 1 <= len(credentials) <= _CREDENTIALS_MAX:
        raise BadRequestError(f"credentials must have 1 to {_CREDENTIALS_MAX} entries")
    if any(not 1 <= len(value) <= _CREDENTIAL_CHARS_MAX for value in credentials.values()):
        raise BadRequestError("a credential is empty or too long")
    for name, value in credentials.items():
        if value != value.strip() and len(value.splitlines()) == 1:  # PEM may end with a line break
            raise BadRequestError(
                f"credentials: {quote_input(name)} starts or ends with a space or a line break"
            )


def check_credential_names(
    context: OperationContext, provider: str, credentials: Mapping[str, str]
) -> None:
    """Reject unknown credential names, and missing required credentials."""
    capabilities = context.capabilities(provider)
    if capabilities is None:  # the adapter is not installed
        return
    required_names = capabilities.credentials
    allowed_names = required_names | capabilities.optional_credentials
    if unknown_names := sorted(credentials.keys() - allowed_names):
        raise BadRequestError(
            f"credentials: {provider} does not use "
            f"{', '.join(_suggest(name, allowed_names) for name in unknown_names)}; "
            f"it uses {', '.join(sorted(allowed_names))}"
        )
    if missing_names := ", ".join(sorted(required_names - credentials.keys())):
        raise BadRequestError(f"credentials: {provider} requires {missing_names}")


def is_hidden_gateway(context: OperationContext, provider: str) -> bool:
    """Return whether a gateway is only for sandboxes and this installation is not a sandbox."""
    capabilities = context.capabilities(provider)
    is_sandbox_only = capabilities is not None and capabilities.sandbox_only
    return is_sandbox_only and not context.settings.sandbox


def check_origins(
    context: OperationContext, provider: str, base_url: str | None, credentials: Mapping[str, str]
) -> None:
    """Check that the origin of each URL belongs to the gateway or is allowed by the settings."""
    if context.settings.sandbox:
        return
    capabilities = context.capabilities(provider)
    allowed_origins: set[str | None] = set()
    if capabilities is not None:
        allowed_origins = {
            *capabilities.origins,
            *map(parse_web_origin, context.settings.extra_gateway_origins),
        }
    urls = {name: value for name, value in credentials.items() if name.endswith("_url")}
    if base_url is not None:
        urls["base_url"] = base_url
    for name, url in urls.items():
        check_web_url(name, url, sandbox=False)
        origin = parse_web_origin(url)
        if origin is None or origin not in allowed_origins:
            raise BadRequestError(
                f"{name}: {quote_input(origin or url)} is not an origin of {provider}; "
                "add other origins to PAYINTENT_GATEWAY_ORIGINS"
            )


def check_mode(context: OperationContext, account: GatewayAccount) -> None:
    """Reject test credentials in live accounts and live credentials in test accounts."""
    capabilities = context.capabilities(account.provider)
    if capabilities and (mismatch := capabilities.describe_mode_mismatch(account)):
        raise BadRequestError(mismatch)


def _suggest(name: str, allowed_names: frozenset[str]) -> str:
    matches = get_close_matches(name, sorted(allowed_names), n=1)
    return quote_input(name) + (f" (did you mean {matches[0]}?)" if matches else "")


_CREDENTIALS_HELP = (
    "A file containing a JSON object of strings, or - for standard input. Credentials cannot be "
    "passed as arguments."
)
_AccountId = Annotated[int, argument("The account ID.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountView(AccountRecord):
    callback_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountCheckResult:
    account_id: int
    provider: str
    works: bool
    problem: str | None
    detail: str


class AddAccount(ChangeOperation[AccountView], frozen=True, kw_only=True):
    """Add a gateway account. Its credentials are encrypted and never shown again."""

    action: ClassVar[str] = "account.add"
    secret_fields: ClassVar[frozenset[str]] = frozenset({"credentials"})
    provider: Annotated[str, option("The provider, such as simulator.")]
    base_url: Annotated[str, option("The base URL of the provider's API.")]
    credentials: Annotated[dict[str, str], option(_CREDENTIALS_HELP)]
    merchant_id: OwnerId = None
    name: Purpose = ""
    countries: Annotated[
        list[str] | None,
        option("Comma-separated. Default: all countries that the gateway supports."),
    ] = None

    test: Annotated[
        bool, option("The account has test credentials and is only for test merchants.")
    ] = False

    async def needs_approval(self, context: OperationContext) -> bool:
        """Return True, because the credentials determine who receives the buyers' money."""
        return True

    async def changes(self, context: OperationContext) -> list[str]:
        owner = _owner_name(self.merchant_id)
        account_type = "test account" if self.test else "account"
        return [
            f"{owner} gets a new {account_type} at {self.provider}: {self.base_url}",
            f"it accepts payments in {_describe_countries(self.countries)}",
            *_describe_credentials(self.credentials),
        ]

    async def check(self, context: OperationContext) -> None:
        capabilities = context.capabilities(self.provider)
        if capabilities is None:
            names = [name for name in context.gateways if not is_hidden_gateway(context, name)]
            raise BadRequestError(f"provider must be one of {', '.join(sorted(names))}")
        check_name("name", self.name or "-")
        check_web_url("base_url", self.base_url, sandbox=context.settings.sandbox)
        check_credentials(self.credentials)
        check_credential_names(context, self.provider, self.credentials)
        check_origins(context, self.provider, self.base_url, self.credentials)
        _check_countries(context, self.provider, self.countries)
        await check_merchant(context.database, self.merchant_id)
        account = GatewayAccount(
            id=0,
            provider=self.provider,
            base_url=self.base_url,
            credentials=self.credentials,
            livemode=not self.test,
        )
        check_mode(context, account)
        await _check_owner(context, self.merchant_id, livemode=not self.test)
        if capabilities.test_only and not self.test:
            raise BadRequestError(
                f"{self.provider} does not move money, so it can only have test accounts"
            )

    async def apply(self, context: OperationContext, tx: Tx) -> AccountView:
        await ensure_writing_key(tx, context.encryption)
        account = NewAccount(
            provider=self.provider,
            merchant_id=self.merchant_id,
            name=self.name,
            base_url=self.base_url,
            countries=self.countries,
            livemode=not self.test,
        )
        account_id = await add_account(context, tx, account, self.credentials)
        return _to_view(context, await _require_account(tx, account_id))


class ListAccounts(ReadOperation[list[AccountRecord]], frozen=True, kw_only=True):
    """List gateway accounts."""

    action: ClassVar[str] = "account.list"
    columns = (
        "id",
        "provider",
        "merchant_id",
        "name",
        "base_url",
        "countries",
        "enabled",
        "livemode",
    )
    limit: int = LIST_LIMIT_MAX

    async def read(self, context: OperationContext) -> list[AccountRecord]:
        check_list_limit(self.limit)
        return await account_store.list_accounts(context.database, self.limit)


class ShowAccount(ReadOperation[AccountView], frozen=True, kw_only=True):
    """Show a gateway account."""

    action: ClassVar[str] = "account.show"
    account_id: _AccountId

    async def read(self, context: OperationContext) -> AccountView:
        return _to_view(context, await _require_account(context.database, self.account_id))


class CheckAccount(ReadOperation[AccountCheckResult], frozen=True, kw_only=True):
    """Test an account with a harmless request to its gateway."""

    action: ClassVar[str] = "account.check"
    needs_role: ClassVar[Role] = Role.SUPPORT
    account_id: _AccountId

    async def read(self, context: OperationContext) -> AccountCheckResult:
        account = await _require_account(context.database, self.account_id)
        gateway_accounts = GatewayAccounts(context.database, context.encryption, context.gateways)
        check = await gateway_accounts.check(account.id, account.provider)
        return AccountCheckResult(
            account_id=account.id,
            provider=account.provider,
            works=check.problem is None,
            problem=check.problem,
            detail=check.detail,
        )


class ChangeAccount(ChangeOperation[AccountView], frozen=True, kw_only=True):
    """Change the name, base URL, countries or credentials of an account.

    Omitted fields remain unchanged.
    """

    action: ClassVar[str] = "account.change"
    secret_fields: ClassVar[frozenset[str]] = frozenset({"credentials"})
    account_id: _AccountId
    name: Annotated[str | None, option("A name that describes the account's purpose.")] = None
    base_url: Annotated[str | None, option("The base URL of the provider's API.")] = None
    credentials: Annotated[dict[str, str] | None, option(_CREDENTIALS_HELP)] = None
    countries: Annotated[list[str] | None, option('Comma-separated; "" for all countries.')] = None

    async def needs_approval(self, context: OperationContext) -> bool:
        """Return True if the base URL or the credentials change, as for `AddAccount`."""
        return self.base_url is not None or self.credentials is not None

    async def changes(self, context: OperationContext) -> list[str]:
        account = await _require_account(context.database, self.account_id)
        changes = [
            f"account {account.id} of {_owner_name(account.merchant_id)} at {account.provider}"
        ]
        if self.base_url is not None:
            changes.append(f"its base URL changes from {account.base_url} to {self.base_url}")
        if self.name is not None:
            old_name, new_name = quote_input(account.name), quote_input(self.name)
            changes.append(f"its name changes from {old_name} to {new_name}")
        if self.countries is not None:
            old_countries = _describe_countries(account.countries)
            new_countries = _describe_countries(self.countries)
            changes.append(f"its countries change from {old_countries} to {new_countries}")
        return changes + _describe_credentials(self.credentials or {})

    async def check(self, context: OperationContext) -> None:
        if self.name:
            check_name("name", self.name)
        if self.base_url is not None:
            check_web_url("base_url", self.base_url, sandbox=context.settings.sandbox)
        account = await _require_account(context.database, self.account_id)
        _check_countries(context, account.provider, self.countries or None)
        if self.credentials is None:
            if self.base_url is not None:
                raise BadRequestError(
                    "a new base_url requires credentials, because they are bound to the base URL"
                )
            return
        check_credentials(self.credentials)
        check_credential_names(context, account.provider, self.credentials)
        check_origins(context, account.provider, self.base_url, self.credentials)
        changed_account = GatewayAccount(
            id=account.id,
            provider=account.provider,
            base_url=self.base_url or account.base_url,
            credentials=self.credentials,
            livemode=account.livemode,
        )
        check_mode(context, changed_account)

    async def apply(self, context: OperationContext, tx: Tx) -> AccountView:
        if self.credentials is not None:
            await ensure_writing_key(tx, context.encryption)
        account = await _lock_account(tx, self.account_id)
        if self.name is not None:
            account = replace(account, name=self.name)
        if self.base_url:
            account = replace(account, base_url=self.base_url)
        if self.countries is not None:
            account = replace(account, countries=tuple(self.countries) or None)
        await account_store.update(tx, account)
        if self.credentials is not None:
            await _set_credentials(context, tx, account.id, account, self.credentials)
        return _to_view(context, account)


class EnableAccount(ChangeOperation[AccountView], frozen=True, kw_only=True):
    """Enable a gateway account."""

    action: ClassVar[str] = "account.enable"
    account_id: _AccountId

    async def apply(self, context: OperationContext, tx: Tx) -> AccountView:
        return await _set_enabled(context, tx, self.account_id, enabled=True)


class DisableAccount(ChangeOperation[AccountView], frozen=True, kw_only=True):
    """Disable a gateway account. Buyers can no longer select it; open sessions continue."""

    action: ClassVar[str] = "account.disable"
    is_destructive: ClassVar[bool] = True
    account_id: _AccountId

    async def apply(self, context: OperationContext, tx: Tx) -> AccountView:
        return await _set_enabled(context, tx, self.account_id, enabled=False)


async def _set_enabled(
    context: OperationContext, tx: Tx, account_id: int, *, enabled: bool
) -> AccountView:
    account = replace(await _lock_account(tx, account_id), enabled=enabled)
    await account_store.update(tx, account)
    return _to_view(context, account)


def _to_view(context: OperationContext, account: AccountRecord) -> AccountView:
    callback_url = f"{context.settings.api_base}/callbacks/{account.provider}/{account.id}"
    return copy_fields(AccountView, account, callback_url=callback_url)


async def _lock_account(tx: Tx, account_id: int) -> AccountRecord:
    account = await account_store.lock(tx, account_id) if is_database_id(account_id) else None
    if account is None:
        raise NotFoundError(f"no account {account_id}")
    return account


async def _require_account(database: Executor, account_id: int) -> AccountRecord:
    account = await account_store.get(database, account_id) if is_database_id(account_id) else None
    if account is None:
        raise NotFoundError(f"no account {account_id}")
    return account


async def add_account(
    context: OperationContext, tx: Tx, account: NewAccount, credentials: Mapping[str, str]
) -> int:
    """Add an account with encrypted credentials; return its id."""
    account_id = await account_store.add(tx, account)
    await _set_credentials(context, tx, account_id, account, credentials)
    return account_id


async def _set_credentials(
    context: OperationContext,
    tx: Tx,
    account_id: int,
    account: NewAccount | AccountRecord,
    credentials: Mapping[str, str],
) -> None:
    """Encrypt and store credentials, bound to the account's id, provider and base URL."""
    sealed = context.encryption.encrypt(
        msgspec.json.encode(dict(credentials)),
        make_account_context(account_id, account.provider, account.base_url),
    )
    await account_store.set_credentials(tx, account_id, sealed)


async def _check_owner(context: OperationContext, owner: int | None, *, livemode: bool) -> None:
    if owner is None:
        return
    if await account_store.is_live_merchant(context.database, owner) is (not livemode):
        raise BadRequestError(
            "a test merchant can only have test accounts, and a live merchant only live accounts"
        )


def _check_countries(
    context: OperationContext, provider: str, countries: Sequence[str] | None
) -> None:
    check_market(countries, None)
    capabilities = context.capabilities(provider)
    supported = capabilities and capabilities.countries
    if countries is None or supported is None:
        return
    if unsupported := ", ".join(sorted(set(countries) - supported)):
        raise BadRequestError(
            f"countries: {provider} does not accept payments in {quote_input(unsupported)}"
        )


def _describe_countries(countries: Sequence[str] | None) -> str:
    return ", ".join(countries or ()) or "all countries that its gateway supports"


def _owner_name(merchant_id: int | None) -> str:
    return "the platform" if merchant_id is None else f"merchant {merchant_id}"


def _describe_credentials(credentials: Mapping[str, str]) -> list[str]:
    """Describe the changed credentials. Only URLs are shown, because other values are secret."""
    return [
        f"its {name} changes to {quote_input(value)}"
        if name.endswith("_url")
        else f"its {name} is replaced"
        for name, value in sorted(credentials.items())
    ]
