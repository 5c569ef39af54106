"""The key ring: which database it belongs to, and re-encryption with its first key."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from payintent.encryption import (
    Encryption,
    EncryptionKeyError,
    account_context,
    callback_secret_context,
    mail_context,
    open_account,
    proposal_context,
)
from payintent.operations.base import ChangeOperation, OperationContext, ReadOperation
from payintent.storage import accounts, encryption_keys, mails, payer_seals, proposals
from payintent.storage.accounts import AccountRecord
from payintent.storage.database import Database, Tx
from payintent.storage.encryption_keys import EncryptionKeyRecord, SealedCredentials

_BATCH = 500
_ACCOUNTS_MAX = 100_000
_COUNTED_MAX = 100_000


@dataclass(frozen=True, slots=True)
class KeyringRotation:
    """What was encrypted again, and which keys are not needed any more."""

    writer: str
    callback_secrets: int
    provider_accounts: int
    retired: list[str]
    payer_values: int  # that a worker has still to seal anew, up to 100,000 of a column


class ShowKeyring(ReadOperation[list[EncryptionKeyRecord]], frozen=True, kw_only=True):
    """List the keys that have written; one that is not retired must stay in every ring."""

    action: ClassVar[str] = "keyring.show"
    columns = ("name", "mark", "since", "retired_at")

    async def read(self, context: OperationContext) -> list[EncryptionKeyRecord]:
        return await encryption_keys.list_keys(context.database)


class RotateKeyring(ChangeOperation[KeyringRotation], frozen=True, kw_only=True):
    """Encrypt every secret again with the first key of the ring, so that the others can go.

    What is of payers a worker seals anew, a batch at a time; until then its key is not retired.
    It is one transaction. Readers do not wait, because every ring has both keys until then.
    Writers of secrets wait, so that no secret that is encrypted with another key is missed.
    """

    action: ClassVar[str] = "keyring.rotate"
    is_destructive: ClassVar[bool] = True
    has_dry_run: ClassVar[bool] = True

    async def foresee(self, context: OperationContext) -> Mapping[str, object]:
        writer, encryption = context.encryption.writer, context.encryption
        found = await accounts.list_accounts(context.database, _ACCOUNTS_MAX)
        keys = await encryption_keys.list_keys(context.database)
        needed = await payer_seals.find_sealing_keys(context.database, [key.name for key in keys])
        return {
            "writer": writer,
            "callback_secrets": await encryption_keys.count_callback_secrets_of_other_keys(
                context.database, encryption.writer_prefix
            ),
            "provider_accounts": sum(
                _open_if_old(encryption, account) is not None for account in found
            ),
            "retired": [
                key.name
                for key in keys
                if key.name != writer and key.retired_at is None and key.name not in needed
            ],
            "payer_values": await payer_seals.count_of_other_keys(context.database, _COUNTED_MAX),
        }

    async def apply(self, context: OperationContext, tx: Tx) -> KeyringRotation:
        """Decrypt with the old key, encrypt with the first one, a batch at a time."""
        await encryption_keys.lock_all_keys(tx)
        secrets = await _reseal_secrets(context.encryption, tx)
        sealed_accounts = await _reseal_accounts(context.encryption, tx)
        await _reseal_proposals(context.encryption, tx)
        await _reseal_mails(context.encryption, tx)
        writer = context.encryption.writer
        names = [key.name for key in await encryption_keys.list_keys(tx)]
        needed = await payer_seals.find_sealing_keys(tx, names)
        retired = await encryption_keys.retire_other_keys(tx, writer, needed)
        waiting = await payer_seals.count_of_other_keys(tx, _COUNTED_MAX)
        return KeyringRotation(writer, secrets, sealed_accounts, retired, waiting)


async def check_encryption_keys(database: Database, encryption: Encryption) -> None:
    """Raise `EncryptionKeyError` where the database was used with other secrets than ours."""
    if (
        await encryption_keys.get_pepper_fingerprint(database, encryption.pepper_mark)
        != encryption.pepper_mark
    ):
        raise EncryptionKeyError("the pepper is not the one that this database is used with")
    keys = await encryption_keys.list_keys(database)
    for key in keys:
        if encryption.marks.get(key.name, key.mark) != key.mark:
            raise EncryptionKeyError(
                f"key {key.name!r} is not the one that this database is used with"
            )
        if key.retired_at is None and key.name not in encryption.marks:
            raise EncryptionKeyError(f"the key ring lacks key {key.name!r}, which is still needed")
    retired = [key.name for key in keys if key.name not in encryption.marks]
    for name in retired and await payer_seals.find_sealing_keys(database, retired):
        raise EncryptionKeyError(f"the key ring lacks key {name!r}, which seals data of payers")
    if encryption.writer not in {key.name for key in keys if key.retired_at is None}:
        await encryption_keys.record_writing_key(
            database, encryption.writer, encryption.marks[encryption.writer]
        )


async def ensure_writing_key(tx: Tx, encryption: Encryption) -> None:
    """Record that our first key encrypts; writers of secrets call this before any other lock.

    So a key that a process still encrypts with never counts as retired.
    """
    name = encryption.writer
    if not await encryption_keys.lock_writing_key(tx, name):
        await encryption_keys.record_writing_key(tx, name, encryption.marks[name])


async def _reseal_secrets(encryption: Encryption, tx: Tx) -> int:
    after, count = UUID(int=0), 0
    while batch := await encryption_keys.lock_callback_secrets_after(tx, after, _BATCH):
        for row in batch:
            encryption_context = callback_secret_context(row.merchant_id, row.id)
            if anew := _anew(encryption, row.sealed, encryption_context):
                await encryption_keys.replace_callback_secret(tx, row.id, anew)
                count += 1
            after = row.id
    return count


async def _reseal_accounts(encryption: Encryption, tx: Tx) -> int:
    after, count = 0, 0
    while batch := await encryption_keys.lock_accounts_after(tx, after, _BATCH):
        for row in batch:
            opened = _open_if_old(encryption, row)
            if opened is not None:
                encryption_context = account_context(row.id, row.provider, row.base_url)
                anew = encryption.encrypt(opened, encryption_context)
                await accounts.set_credentials(tx, row.id, anew)
                count += 1
            after = row.id
    return count


def _open_if_old(
    encryption: Encryption, account: SealedCredentials | AccountRecord
) -> bytes | None:
    """Decrypt credentials that another key encrypted, or that are not bound to their address."""
    opened, is_bound = open_account(
        encryption, account.id, account.provider, account.base_url, account.sealed
    )
    is_old = not is_bound or encryption.key_name_of(account.sealed) != encryption.writer
    return opened if is_old else None


async def _reseal_proposals(encryption: Encryption, tx: Tx) -> None:
    after = UUID(int=0)
    while batch := await proposals.sealed_after(tx, after, _BATCH):
        for proposal in batch:
            assert proposal.sealed is not None  # noqa: S101 - the query selects only these
            encryption_context = proposal_context(
                proposal.id, proposal.action, proposal.proposed_by
            )
            if anew := _anew(encryption, proposal.sealed, encryption_context):
                await proposals.seal(tx, proposal.id, anew)
            after = proposal.id


async def _reseal_mails(encryption: Encryption, tx: Tx) -> None:
    after = UUID(int=0)
    while batch := await mails.sealed_after(tx, after, _BATCH):
        for mail in batch:
            assert mail.sealed is not None  # noqa: S101 - the query selects only these
            if anew := _anew(encryption, mail.sealed, mail_context(mail.id)):
                await mails.seal(tx, mail.id, anew)
            after = mail.id


def _anew(encryption: Encryption, sealed: bytes, encryption_context: str) -> bytes | None:
    if encryption.key_name_of(sealed) == encryption.writer:
        return None
    opened = encryption.decrypt(sealed, encryption_context)
    return encryption.encrypt(opened, encryption_context)
