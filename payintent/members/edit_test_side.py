"""Let members create and change their merchant's test side without an operator.

Nothing in this module can change a live merchant: `lock_test_merchant` rejects the change, and so
does the trigger `audit_member_change` when the change's audit entry is written.
"""

from dataclasses import dataclass, fields, replace
from datetime import timedelta
from uuid import UUID

from payintent.core.errors import BadRequestError, ConflictError
from payintent.db.database import Tx, get_current_time
from payintent.http.egress import EgressRefusedError, check_callback_url, make_egress_rules
from payintent.merchants.access_operations import IssueApiKey, IssuedApiKey, list_own_keys
from payintent.merchants.callback_secrets import (
    IssuedCallbackSecret,
    RotateCallbackSecret,
    list_secret_times,
)
from payintent.merchants.model import Merchant
from payintent.merchants.operations import SetCallbackUrl, SetMerchantProfile
from payintent.merchants.provisioning import lock_test_merchant, lock_test_side
from payintent.operators.operation import Actor, ChangeOperation, OperationContext, run

TEST_KEYS_MAX = 50  # active keys
_ROTATIONS_MAX = 20
_ROTATIONS_PERIOD = timedelta(hours=1)
_FIRST_KEY = "first"
_TOO_MANY_KEYS = f"There are already {TEST_KEYS_MAX} active keys. Revoke a key first."
_ALREADY_CREATED = (
    "A key has been created since you opened this page. If it is yours, its secret cannot be shown "
    "again: revoke it and create another key."
)
_ALREADY_ROTATED = (
    "The secret has been rotated since you opened this page. If you have not stored the new "
    "secret, rotate it again."
)
_TOO_MANY_ROTATIONS = (
    f"The secret can be rotated up to {_ROTATIONS_MAX} times an hour. Try again later."
)
_PRIVATE_HOST = "The host of the callback URL must resolve only to public addresses."


@dataclass(frozen=True, slots=True, kw_only=True)
class EditableSettings:
    """The settings that members can change on the test side. A setting that is not set is empty."""

    callback_url: str = ""
    return_url: str = ""
    allowed_origins: tuple[str, ...] = ()
    logo_url: str = ""
    accent_colour: str = ""

    @classmethod
    def of_merchant(cls, merchant: Merchant) -> "EditableSettings":
        return cls(
            callback_url=merchant.callback_url or "",
            return_url=merchant.return_url or "",
            allowed_origins=merchant.allowed_origins,
            logo_url=merchant.logo_url or "",
            accent_colour=merchant.accent_colour or "",
        )


_NAMES = tuple(field.name for field in fields(EditableSettings))


class SettingsConflictError(ConflictError):
    """Another member has changed the same settings. `current` contains the stored values."""

    def __init__(self, names: list[str], current: EditableSettings) -> None:
        super().__init__(
            "Another member has changed the same settings since you opened this page. Your values "
            "have not been saved. Save again to replace the other member's values."
        )
        self.names = names
        self.current = current


async def create_test_side(
    context: OperationContext, actor: Actor, live_merchant_id: int
) -> IssuedApiKey | None:
    """Create a live merchant's test merchant with a key. Return None if it already exists."""
    change = IssueApiKey(merchant_id=live_merchant_id, name=_FIRST_KEY, test=True)
    async with context.database.transaction() as tx:
        if await lock_test_side(tx, live_merchant_id) is not None:
            return None
        return await run(replace(context, actor=actor), tx, change)


async def change_test_settings(
    context: OperationContext,
    actor: Actor,
    merchant_id: int,
    *,
    opened: EditableSettings,
    entered: EditableSettings,
) -> None:
    """Store the settings that a member has changed in a form whose initial values were `opened`.

    Changes by other members to other settings are preserved. Raises `SettingsConflictError` without
    storing any setting if another member has changed the same setting to a different value.
    """
    names = [name for name in _NAMES if getattr(entered, name) != getattr(opened, name)]
    changes = _list_changes(merchant_id, entered, names)
    context = replace(context, actor=actor)
    await _check_changes(context, changes)
    async with context.database.transaction() as tx:
        merchant = await lock_test_merchant(tx, merchant_id)
        current = EditableSettings.of_merchant(merchant)
        conflicts = [
            name
            for name in names
            if getattr(current, name) not in {getattr(opened, name), getattr(entered, name)}
        ]
        if conflicts:
            raise SettingsConflictError(conflicts, current)
        for change in changes:
            await run(context, tx, change)


def _list_changes(
    merchant_id: int, entered: EditableSettings, names: list[str]
) -> list[ChangeOperation[Merchant]]:
    def pick(name: str) -> str | None:
        return getattr(entered, name) if name in names else None

    changes: list[ChangeOperation[Merchant]] = []
    if set(names) - {"callback_url"}:
        has_origins = "allowed_origins" in names
        change = SetMerchantProfile(
            merchant_id=merchant_id,
            return_url=pick("return_url"),
            allowed_origins=list(entered.allowed_origins) if has_origins else None,
            logo_url=pick("logo_url"),
            accent_colour=pick("accent_colour"),
        )
        changes.append(change)
    if "callback_url" in names:
        changes.append(
            SetCallbackUrl(merchant_id=merchant_id, callback_url=entered.callback_url or None)
        )
    return changes


async def _check_changes(
    context: OperationContext, changes: list[ChangeOperation[Merchant]]
) -> None:
    for change in changes:
        if not isinstance(change, SetCallbackUrl):
            await change.check(context)
            continue
        if change.callback_url is not None:
            _check_url_text(change.callback_url, context)
        try:
            await change.check(context)
        except BadRequestError as error:
            if not isinstance(error.__cause__, EgressRefusedError):
                raise
            # Do not reveal which names exist in the operator's network, or their addresses.
            raise BadRequestError(_PRIVATE_HOST) from None


def _check_url_text(url: str, context: OperationContext) -> None:
    """Check a callback URL without resolving its host, so that the reason can be shown."""
    try:
        check_callback_url(url, make_egress_rules(context.settings, is_public_only=True))
    except EgressRefusedError as error:
        raise BadRequestError(f"callback_url is not allowed: {error.reason}") from None


async def create_test_key(
    context: OperationContext, actor: Actor, merchant_id: int, *, name: str, newest_key: str
) -> IssuedApiKey:
    """Create a test key. `newest_key` is the key that was newest when the form was opened.

    Raises `CONFLICT` if there is a newer key, so that a form that is submitted twice creates a
    single key.
    """
    async with context.database.transaction() as tx:
        merchant = await lock_test_merchant(tx, merchant_id)
        keys = await list_own_keys(tx, merchant_id)
        if (keys[0].public_id if keys else "") != newest_key:
            raise ConflictError(_ALREADY_CREATED)
        if sum(key.revoked_at is None for key in keys) >= TEST_KEYS_MAX:
            raise ConflictError(_TOO_MANY_KEYS)
        # With `test=True`, this issues a key for the live merchant's test side, and never a live
        # key.
        assert merchant.live_merchant is not None  # noqa: S101 - guaranteed by merchant_test_side
        change = IssueApiKey(merchant_id=merchant.live_merchant, name=name, test=True)
        await change.check(context)
        return await run(replace(context, actor=actor), tx, change)


async def rotate_test_secret(
    context: OperationContext,
    actor: Actor,
    merchant_id: int,
    *,
    newest_secret: UUID | None,
    overlap_s: int,
) -> IssuedCallbackSecret:
    """Replace the webhook secret.

    `newest_secret` is the secret that was newest when the form was opened. Raises `CONFLICT` if
    there is a newer secret.
    """
    change = RotateCallbackSecret(merchant_id=merchant_id, overlap_s=overlap_s)
    await change.check(context)
    async with context.database.transaction() as tx:
        await lock_test_merchant(tx, merchant_id)
        await _check_rotations(tx, merchant_id, newest_secret)
        return await run(replace(context, actor=actor), tx, change)


async def _check_rotations(tx: Tx, merchant_id: int, newest_secret: UUID | None) -> None:
    times = await list_secret_times(tx, merchant_id, _ROTATIONS_MAX)
    if (times[0].id if times else None) != newest_secret:
        raise ConflictError(_ALREADY_ROTATED)
    earliest = await get_current_time(tx) - _ROTATIONS_PERIOD
    if len(times) == _ROTATIONS_MAX and times[-1].created_at > earliest:
        raise ConflictError(_TOO_MANY_ROTATIONS)
