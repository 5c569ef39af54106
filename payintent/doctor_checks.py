"""The `doctor` command's checks of operators and gateway accounts."""

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from payintent.core.access import Role, parse_claim_roles
from payintent.gateway_accounts import store as account_store
from payintent.gateway_accounts.store import AccountRecord
from payintent.operators import tokens_store
from payintent.operators.operation import OperationContext
from payintent.runtime.encryption import Encryption, open_account

_ACCOUNTS_MAX = 10_000
_ADMINS_MIN = 2  # a proposer and an approver


@dataclass(frozen=True, slots=True)
class SetupFinding:
    """A line in the output of `doctor`."""

    subject: str
    works: bool
    text: str


async def examine_setup(context: OperationContext) -> list[SetupFinding]:
    """Check operators and gateway accounts.

    In the sandbox, operators are not checked, because its terminals do not need approval. Raises
    `EncryptionKeyError` if credentials cannot be decrypted.
    """
    findings = [] if context.settings.sandbox else [await _examine_admins(context)]
    records = await account_store.list_accounts(context.database, _ACCOUNTS_MAX)
    findings.extend(_examine_accounts(context, records))
    return findings


async def _examine_admins(context: OperationContext) -> SetupFinding:
    if not await tokens_store.is_readable(context.database):
        return SetupFinding("operators", True, "not examined: this database role cannot read them")
    count = await tokens_store.count_live(context.database, Role.ADMIN)
    text = f"admins with a valid token: {count}"
    settings = context.database.settings
    if settings.oidc_issuer and Role.ADMIN in parse_claim_roles(settings.oidc_roles).values():
        return SetupFinding("operators", True, f"{text}; other admins sign in with OpenID Connect")
    if count < _ADMINS_MIN:
        text += f"; operations for admins cannot be approved with fewer than {_ADMINS_MIN}"
    return SetupFinding("operators", count >= _ADMINS_MIN, text)


def _examine_accounts(
    context: OperationContext, records: list[AccountRecord]
) -> Iterator[SetupFinding]:
    unbound: list[str] = []
    incomplete: dict[tuple[str, str], list[str]] = {}
    orphaned: dict[str, list[str]] = {}
    for account in records:
        names, is_bound = _credential_names(context.encryption, account)
        if not is_bound:
            unbound.append(str(account.id))
        if not account.enabled:
            continue
        capabilities = context.capabilities(account.provider)
        if capabilities is None:
            orphaned.setdefault(account.provider, []).append(str(account.id))
        elif missing := capabilities.credentials - names:
            key = account.provider, ", ".join(sorted(missing))
            incomplete.setdefault(key, []).append(str(account.id))
    for provider, ids in sorted(orphaned.items()):
        text = (
            f"accounts at {provider}, whose gateway is not installed: {', '.join(ids)}; "
            "install its package before you start the service"
        )
        yield SetupFinding("accounts", False, text)
    for (provider, names), ids in sorted(incomplete.items()):
        text = f"accounts at {provider} without {names}, which cannot be used: {', '.join(ids)}"
        yield SetupFinding("accounts", False, text)
    if unbound:
        text = (
            "accounts whose credentials are not bound to provider and base_url: "
            f"{', '.join(unbound)}; run payintent keyring rotate"
        )
        yield SetupFinding("accounts", False, text)
    if not incomplete and not unbound and not orphaned:
        yield SetupFinding("accounts", True, f"{len(records)}, with all required credentials")


def _credential_names(
    encryption: Encryption, account: AccountRecord
) -> tuple[frozenset[str], bool]:
    """Return an account's credential names, and whether its encryption context is current."""
    decrypted, is_bound = open_account(
        encryption, account.id, account.provider, account.base_url, account.sealed
    )
    return frozenset(msgspec.json.decode(decrypted, type=dict[str, str])), is_bound
