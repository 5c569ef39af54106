"""API keys of merchants: issued, listed, revoked for good."""

import secrets as chance
from dataclasses import dataclass
from typing import ClassVar

from payintent.domain import api_key, ids
from payintent.domain.errors import Code, Refused
from payintent.operations.base import Change, Desk, Read
from payintent.operations.validation import (
    LISTED_MAX,
    check_listed,
    check_name,
    known_merchant,
    told,
)
from payintent.storage import merchants
from payintent.storage.database import Tx
from payintent.storage.merchants import ApiKey


@dataclass(frozen=True, slots=True)
class NewKey:
    """A new API key, shown this once."""

    merchant_id: int
    api_key: str


class IssueKey(Change[NewKey], frozen=True, kw_only=True):
    """Issue another API key; it is shown this once."""

    action: ClassVar[str] = "key.issue"
    merchant_id: int
    name: str = ""

    async def needs_approval(self, desk: Desk) -> bool:
        """Need it over HTTP, where the key would be shown to whoever holds a token."""
        return desk.actor.over_http

    async def changes(self, desk: Desk) -> list[str]:
        """Say whose key it is."""
        merchant = await known_merchant(desk.database, self.merchant_id)
        return [
            f"merchant {merchant.id} ({told(merchant.name)}) gets another API key"
            + (f", named {told(self.name)}" if self.name else ""),
            "whoever approves is shown the key, and hands it over",
        ]

    async def check(self, desk: Desk) -> None:
        """Refuse a name that cannot be printed."""
        check_name("name", self.name or "-")
        await known_merchant(desk.database, self.merchant_id)

    async def apply(self, desk: Desk, tx: Tx) -> NewKey:
        """Write its digest."""
        return NewKey(self.merchant_id, await issue_key(desk, tx, self.merchant_id, self.name))


class ListKeys(Read[list[ApiKey]], frozen=True, kw_only=True):
    """List a merchant's keys by their public part, newest first."""

    action: ClassVar[str] = "key.list"
    merchant_id: int
    limit: int = LISTED_MAX

    async def read(self, desk: Desk) -> list[ApiKey]:
        """Give them."""
        check_listed(self.limit)
        await known_merchant(desk.database, self.merchant_id)
        return await merchants.keys_of(desk.database, self.merchant_id, self.limit)


class RevokeKey(Change[ApiKey], frozen=True, kw_only=True):
    """Revoke a key for good; every process knows within a second."""

    action: ClassVar[str] = "key.revoke"
    public_id: str

    async def apply(self, desk: Desk, tx: Tx) -> ApiKey:
        """Write when; revoking twice keeps the first time."""
        del desk
        key = await merchants.revoke_key(tx, self.public_id)
        if key is None:
            raise Refused(Code.NOT_FOUND, f"no key {told(self.public_id)}")
        return key

    def about(self, result: ApiKey) -> int:
        """Name the key's merchant."""
        return result.merchant_id


async def issue_key(desk: Desk, tx: Tx, merchant_id: int, name: str) -> str:
    """Make a key and keep its digest; gives the key's text."""
    key = new_key(api_key.MERCHANT)
    await merchants.add_key(tx, key.public_id, merchant_id, name, desk.secrets.digest(key.text))
    return key.text


def new_key(prefix: str) -> api_key.KeyText:
    """Make a key or a token of 256 random bits."""
    return api_key.make(prefix, _base62(api_key.PUBLIC_CHARS), _base62(api_key.SECRET_CHARS))


def _base62(length: int) -> str:
    return ids.base62(chance.randbelow(62**length), length)
