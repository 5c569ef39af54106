"""Verify the key ring against the database, and re-encrypt all secrets with its first key."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeVar
from uuid import UUID

from payintent.db import encryption_keys
from payintent.db.database import Database, Tx
from payintent.db.encryption_keys import EncryptionKeyRecord, SealedCredentials
from payintent.gateway_accounts import store as account_store
from payintent.gateway_accounts.store import AccountRecord
from payintent.mail import store as mail_store
from payintent.operators import proposals_store
from payintent.operators.operation import ChangeOperation, OperationContext, ReadOperation
from payintent.privacy import seals_store
from payintent.runtime.encryption import (
    Encryption,
    EncryptionKeyError,
    decrypt_credentials,
    make_account_context,
    make_callback_secret_context,
    make_mail_context,
    make_proposal_context,
)

_BATCH_SIZE = 500
_ACCOUNTS_MAX = 100_000
_COUNT_MAX = 100_000


@dataclass(frozen=True, slots=True)
class KeyringRotation:
    writer: str  # the key that encrypts new secrets
    callback_secrets: int  # number of re-encrypted secrets
    provider_accounts: int
    retired: list[str]  # names of retired keys
    payer_values: int  # to be re-encrypted by a worker; counted up to 100,000 per column


class ShowKeyring(ReadOperation[list[EncryptionKeyRecord]], frozen=True, kw_only=True):
    """List encryption keys. Every key ring must contain the keys that are not retired."""

    action: ClassVar[str] = "keyring.show"
    columns = ("name", "mark", "since", "retired_at")

    async def read(self, context: OperationContext) -> list[EncryptionKeyRecord]:
        return await encryption_keys.list_keys(context.database)


class RotateKeyring(ChangeOperation[KeyringRotation], frozen=True, kw_only=True):
    """Re-encrypt every secret with the first key of the ring, so that you can remove old keys.

    A worker then re-encrypts payer data in batches. Run the operation again afterwards to retire
    the old key. The operation is a single transaction. It does not block readers, because every
    ring still contains both keys. It blocks writers of secrets, so that no secret is missed.
    """

    action: ClassVar[str] = "keyring.rotate"
    is_destructive: ClassVar[bool] = True
    has_dry_run: ClassVar[bool] = True

    async def count_changes(self, context: OperationContext) -> Mapping[str, object]:
        writer, encryption = context.encryption.current_key_name, context.encryption
        records = await account_store.list_accounts(context.database, _ACCOUNTS_MAX)
        keys = await encryption_keys.list_keys(context.database)
        keys_in_use = await seals_store.find_sealing_keys(
            context.database, [key.name for key in keys]
        )
        return {
            "writer": writer,
            "callback_secrets": await encryption_keys.count_callback_secrets_with_old_keys(
                context.database, encryption.current_key_prefix
            ),
            "provider_accounts": sum(
                _decrypt_if_stale(encryption, account) is not None for account in records
            ),
            "retired": [
                key.name
                for key in keys
                if key.name != writer and key.retired_at is None and key.name not in keys_in_use
            ],
            "payer_values": await seals_store.count_values_with_old_keys(
                context.database, _COUNT_MAX
            ),
        }

    async def apply(self, context: OperationContext, tx: Tx) -> KeyringRotation:
        encryption, writer = context.encryption, context.encryption.current_key_name
        await encryption_keys.lock_all_keys(tx)
        await encryption_keys.ensure_writing_key(tx, encryption)  # a rotation may have retired it
        secrets = await _reencrypt(
            encryption,
            tx,
            encryption_keys.lock_callback_secrets_after,
            lambda row: make_callback_secret_context(row.merchant_id, row.id),
            encryption_keys.replace_callback_secret,
        )
        credentials = await _reencrypt_accounts(encryption, tx)
        await _reencrypt(
            encryption,
            tx,
            proposals_store.lock_sealed_after,
            lambda row: make_proposal_context(row.id, row.action, row.proposed_by),
            proposals_store.replace_sealed,
        )
        await _reencrypt(
            encryption,
            tx,
            mail_store.lock_sealed_after,
            lambda row: make_mail_context(row.id),
            mail_store.replace_sealed,
        )
        names = [key.name for key in await encryption_keys.list_keys(tx)]
        keys_in_use = await seals_store.find_sealing_keys(tx, names)
        retired_names = await encryption_keys.retire_other_keys(tx, writer, keys_in_use)
        stale_values = await seals_store.count_values_with_old_keys(tx, _COUNT_MAX)
        return KeyringRotation(writer, secrets, credentials, retired_names, stale_values)


async def check_encryption_keys(database: Database, encryption: Encryption) -> None:
    """Raise `EncryptionKeyError` if the pepper or the key ring does not match the database."""
    if (
        await encryption_keys.get_or_set_pepper_fingerprint(database, encryption.pepper_fingerprint)
        != encryption.pepper_fingerprint
    ):
        raise EncryptionKeyError("the pepper does not belong to this database")
    keys = await encryption_keys.list_keys(database)
    for key in keys:
        if encryption.fingerprints.get(key.name, key.mark) != key.mark:
            raise EncryptionKeyError(f"key {key.name!r} does not belong to this database")
        if key.retired_at is None and key.name not in encryption.fingerprints:
            raise EncryptionKeyError(f"the key ring lacks key {key.name!r}, which is still in use")
    retired_names = [key.name for key in keys if key.name not in encryption.fingerprints]
    for name in retired_names and await seals_store.find_sealing_keys(database, retired_names):
        raise EncryptionKeyError(f"the key ring lacks key {name!r}, which seals payer data")
    if encryption.current_key_name not in {key.name for key in keys if key.retired_at is None}:
        await encryption_keys.record_writing_key(
            database,
            encryption.current_key_name,
            encryption.fingerprints[encryption.current_key_name],
        )


class _SealedRow(Protocol):
    @property
    def id(self) -> UUID: ...
    @property
    def sealed(self) -> bytes | None: ...


_Row = TypeVar("_Row", bound=_SealedRow)


async def _reencrypt(
    encryption: Encryption,
    tx: Tx,
    lock_after: Callable[[Tx, UUID, int], Awaitable[list[_Row]]],
    encryption_context: Callable[[_Row], str],
    replace: Callable[[Tx, UUID, bytes], Awaitable[None]],
) -> int:
    """Re-encrypt a table's rows that use an older key; return their number."""
    after, count = UUID(int=0), 0
    while batch := await lock_after(tx, after, _BATCH_SIZE):
        for row in batch:
            assert row.sealed is not None  # noqa: S101 - the queries select only sealed rows
            if encryption.get_key_name(row.sealed) != encryption.current_key_name:
                context = encryption_context(row)
                secret = encryption.decrypt(row.sealed, context)
                await replace(tx, row.id, encryption.encrypt(secret, context))
                count += 1
            after = row.id
    return count


async def _reencrypt_accounts(encryption: Encryption, tx: Tx) -> int:
    after, count = 0, 0
    while batch := await encryption_keys.lock_accounts_after(tx, after, _BATCH_SIZE):
        for row in batch:
            credentials = _decrypt_if_stale(encryption, row)
            if credentials is not None:
                encryption_context = make_account_context(row.id, row.provider, row.base_url)
                sealed_credentials = encryption.encrypt(credentials, encryption_context)
                await account_store.set_credentials(tx, row.id, sealed_credentials)
                count += 1
            after = row.id
    return count


def _decrypt_if_stale(
    encryption: Encryption, account: SealedCredentials | AccountRecord
) -> bytes | None:
    """Decrypt credentials that use an old key or are not bound to their base URL.

    Returns None for other credentials.
    """
    credentials, is_bound = decrypt_credentials(
        encryption, account.id, account.provider, account.base_url, account.sealed
    )
    is_stale = (
        not is_bound or encryption.get_key_name(account.sealed) != encryption.current_key_name
    )
    return credentials if is_stale else None
