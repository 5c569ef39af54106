"""The checks of `doctor` on operators and gateway accounts: what is set up and cannot work."""

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from payintent.domain.claim_roles import parse_claim_roles
from payintent.domain.operator import Role
from payintent.encryption import Encryption, open_account
from payintent.operations.base import OperationContext
from payintent.storage import accounts, operator_tokens
from payintent.storage.accounts import AccountRecord

_ACCOUNTS_MAX = 10_000
_ADMINS_MIN = 2  # one proposes, another one approves


@dataclass(frozen=True, slots=True)
class SetupFinding:
    """One line of `doctor`: what was examined, whether it can work, and why not."""

    subject: str
    works: bool
    text: str


async def examine_setup(context: OperationContext) -> list[SetupFinding]:
    """Examine operators and accounts; raises `EncryptionKeyError` for undecryptable credentials.

    In the sandbox operators are left out, because its terminals need no approval.
    """
    found = [] if context.settings.sandbox else [await _examine_admins(context)]
    listed = await accounts.list_accounts(context.database, _ACCOUNTS_MAX)
    found.extend(_examine_accounts(context, listed))
    return found


async def _examine_admins(context: OperationContext) -> SetupFinding:
    if not await operator_tokens.is_readable(context.database):
        return SetupFinding("operators", True, "not examined: this database role cannot read them")
    count = await operator_tokens.count_live(context.database, Role.ADMIN)
    text = f"admins whose token works: {count}"
    settings = context.database.settings
    if settings.oidc_issuer and Role.ADMIN in parse_claim_roles(settings.oidc_roles).values():
        return SetupFinding("operators", True, f"{text}; others sign in by OpenID Connect")
    if count < _ADMINS_MIN:
        text += f"; nothing that needs admins can be approved with fewer than {_ADMINS_MIN}"
    return SetupFinding("operators", count >= _ADMINS_MIN, text)


def _examine_accounts(
    context: OperationContext, listed: list[AccountRecord]
) -> Iterator[SetupFinding]:
    unbound: list[str] = []
    lacking: dict[tuple[str, str], list[str]] = {}
    abandoned: dict[str, list[str]] = {}
    for account in listed:
        names, is_bound = _open(context.encryption, account)
        if not is_bound:
            unbound.append(str(account.id))
        if not account.enabled:
            continue
        capabilities = context.capabilities(account.provider)
        if capabilities is None:
            abandoned.setdefault(account.provider, []).append(str(account.id))
        elif missing := capabilities.credentials - names:
            key = account.provider, ", ".join(sorted(missing))
            lacking.setdefault(key, []).append(str(account.id))
    for provider, ids in sorted(abandoned.items()):
        text = (
            f"accounts at {provider}, whose gateway is not installed here: {', '.join(ids)}; "
            "install its package before anything starts"
        )
        yield SetupFinding("accounts", False, text)
    for (provider, names), ids in sorted(lacking.items()):
        text = f"accounts at {provider} without {names}, which sell nothing: {', '.join(ids)}"
        yield SetupFinding("accounts", False, text)
    if unbound:
        text = (
            "accounts whose credentials are not bound to provider and base_url: "
            f"{', '.join(unbound)}; run payintent keyring rotate"
        )
        yield SetupFinding("accounts", False, text)
    if not lacking and not unbound and not abandoned:
        yield SetupFinding("accounts", True, f"{len(listed)}, with the credentials that they need")


def _open(encryption: Encryption, account: AccountRecord) -> tuple[frozenset[str], bool]:
    """Return the names of an account's credentials, and whether they have the present context."""
    opened, is_bound = open_account(
        encryption, account.id, account.provider, account.base_url, account.sealed
    )
    return frozenset(msgspec.json.decode(opened, type=dict[str, str])), is_bound
