"""The key ring: whose database this is, and sealing everything anew under the first key."""

import secrets as chance
from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from payintent.encryption import (
    NONCE_BYTES,
    Secrets,
    SecretsUnusable,
    account_place,
    open_account,
    proposal_place,
    secret_place,
)
from payintent.operations.base import Change, Desk, Read
from payintent.storage import accounts, encryption_keys, proposals
from payintent.storage.database import Database, Tx
from payintent.storage.encryption_keys import RingKey

_BATCH = 500


@dataclass(frozen=True, slots=True)
class Rotated:
    """What was sealed anew, and which keys nothing needs any more."""

    writer: str
    callback_secrets: int
    provider_accounts: int
    retired: list[str]


class ShowKeyring(Read[list[RingKey]], frozen=True, kw_only=True):
    """List the keys that have written; one that is not retired must stay in every ring."""

    action: ClassVar[str] = "keyring.show"

    async def read(self, desk: Desk) -> list[RingKey]:
        """Give them."""
        return await encryption_keys.keys(desk.database)


class RotateKeyring(Change[Rotated], frozen=True, kw_only=True):
    """Seal every secret anew under the first key of the ring, so that the others can go.

    One transaction; readers are not held up, for both keys are in every ring meanwhile. Whoever
    wants to seal something waits, so that nothing is missed that is sealed with another key.
    """

    action: ClassVar[str] = "keyring.rotate"

    async def apply(self, desk: Desk, tx: Tx) -> Rotated:
        """Open with the old key, seal with the first one, a batch at a time."""
        await encryption_keys.hold(tx)
        secrets = await _reseal_secrets(desk.secrets, tx)
        sealed_accounts = await _reseal_accounts(desk.secrets, tx)
        await _reseal_proposals(desk.secrets, tx)
        retired = await encryption_keys.retire_others(tx, desk.secrets.writer)
        return Rotated(desk.secrets.writer, secrets, sealed_accounts, retired)


async def check_secrets(database: Database, secrets: Secrets) -> None:
    """Refuse (`SecretsUnusable`) to work on a database that needs other secrets than ours."""
    if await encryption_keys.pepper_mark(database, secrets.pepper_mark) != secrets.pepper_mark:
        raise SecretsUnusable("the pepper is not the one that this database is used with")
    known = await encryption_keys.keys(database)
    for key in known:
        if secrets.marks.get(key.name, key.mark) != key.mark:
            raise SecretsUnusable(
                f"key {key.name!r} is not the one that this database is used with"
            )
        if key.retired_at is None and key.name not in secrets.marks:
            raise SecretsUnusable(f"the key ring lacks key {key.name!r}, which is still needed")
    if secrets.writer not in {key.name for key in known if key.retired_at is None}:
        await encryption_keys.write_with(database, secrets.writer, secrets.marks[secrets.writer])


async def note_writer(desk: Desk, tx: Tx) -> None:
    """Note that our first key writes; whoever seals does so before anything else is locked.

    So a key that a process still writes with is never held to be retired.
    """
    name = desk.secrets.writer
    if not await encryption_keys.is_writing(tx, name):
        await encryption_keys.write_with(tx, name, desk.secrets.marks[name])


async def _reseal_secrets(secrets: Secrets, tx: Tx) -> int:
    after, count = UUID(int=0), 0
    while batch := await encryption_keys.secrets_after(tx, after, _BATCH):
        for row in batch:
            place = secret_place(row.merchant_id, row.id)
            if anew := _anew(secrets, row.sealed, place):
                await encryption_keys.reseal_secret(tx, row.id, anew)
                count += 1
            after = row.id
    return count


async def _reseal_accounts(secrets: Secrets, tx: Tx) -> int:
    after, count = 0, 0
    while batch := await encryption_keys.accounts_after(tx, after, _BATCH):
        for row in batch:
            opened, is_bound = open_account(secrets, row.id, row.provider, row.base_url, row.sealed)
            if not is_bound or secrets.sealed_by(row.sealed) != secrets.writer:
                place = account_place(row.id, row.provider, row.base_url)
                anew = secrets.seal(opened, place, chance.token_bytes(NONCE_BYTES))
                await accounts.seal(tx, row.id, anew)
                count += 1
            after = row.id
    return count


async def _reseal_proposals(secrets: Secrets, tx: Tx) -> None:
    after = UUID(int=0)
    while batch := await proposals.sealed_after(tx, after, _BATCH):
        for proposal in batch:
            assert proposal.sealed is not None  # noqa: S101 - as the query has it
            place = proposal_place(proposal.id, proposal.action, proposal.proposed_by)
            if anew := _anew(secrets, proposal.sealed, place):
                await proposals.seal(tx, proposal.id, anew)
            after = proposal.id


def _anew(secrets: Secrets, sealed: bytes, place: str) -> bytes | None:
    if secrets.sealed_by(sealed) == secrets.writer:
        return None
    return secrets.seal(secrets.open(sealed, place), place, chance.token_bytes(NONCE_BYTES))
