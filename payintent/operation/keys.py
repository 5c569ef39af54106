"""API keys of merchants and tokens of operators: issued, listed, revoked for good."""

import secrets as chance
from dataclasses import dataclass
from typing import ClassVar

from payintent.domain import apikey, ids
from payintent.domain.errors import Code, Refused
from payintent.operation.checks import LISTED_MAX, check_listed, check_name, known_merchant, told
from payintent.operation.desk import NOBODYS, Change, Desk, Read
from payintent.storage import merchants, operators
from payintent.storage.database import Tx
from payintent.storage.merchants import ApiKey
from payintent.storage.operators import Token


@dataclass(frozen=True, slots=True)
class NewKey:
    """A new API key, shown this once."""

    merchant_id: int
    api_key: str


@dataclass(frozen=True, slots=True)
class NewToken:
    """A new operator's token, shown this once."""

    name: str
    token: str


class IssueKey(Change[NewKey], frozen=True, kw_only=True):
    """Issue another API key; it is shown this once."""

    action: ClassVar[str] = "key.issue"
    merchant_id: int
    name: str = ""

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


class IssueToken(Change[NewToken], frozen=True, kw_only=True):
    """Issue an operator's token to a person; it is shown this once."""

    action: ClassVar[str] = "operator.issue"
    name: str

    async def check(self, desk: Desk) -> None:
        """Refuse a name that cannot be printed, or that the audit log would take for another."""
        del desk
        check_name("name", self.name)
        for taken in NOBODYS:
            if self.name.startswith(taken):
                raise Refused(Code.BAD_REQUEST, f"a name does not start with {taken}")

    async def apply(self, desk: Desk, tx: Tx) -> NewToken:
        """Write its digest."""
        token = _make(apikey.OPERATOR)
        await operators.add(tx, token.public_id, self.name, desk.secrets.digest(token.text))
        return NewToken(self.name, token.text)


class ListTokens(Read[list[Token]], frozen=True, kw_only=True):
    """List operators' tokens by their public part, newest first."""

    action: ClassVar[str] = "operator.list"
    limit: int = LISTED_MAX

    async def read(self, desk: Desk) -> list[Token]:
        """Give them."""
        check_listed(self.limit)
        return await operators.listed(desk.database, self.limit)


class RevokeToken(Change[Token], frozen=True, kw_only=True):
    """Revoke an operator's token for good, at once."""

    action: ClassVar[str] = "operator.revoke"
    public_id: str

    async def apply(self, desk: Desk, tx: Tx) -> Token:
        """Write when; revoking twice keeps the first time."""
        del desk
        token = await operators.revoke(tx, self.public_id)
        if token is None:
            raise Refused(Code.NOT_FOUND, f"no operator token {told(self.public_id)}")
        return token


async def issue_key(desk: Desk, tx: Tx, merchant_id: int, name: str) -> str:
    """Make a key and keep its digest; gives the key's text."""
    key = _make(apikey.MERCHANT)
    await merchants.add_key(tx, key.public_id, merchant_id, name, desk.secrets.digest(key.text))
    return key.text


def _make(prefix: str) -> apikey.KeyText:
    return apikey.make(prefix, _base62(apikey.PUBLIC_CHARS), _base62(apikey.SECRET_CHARS))


def _base62(length: int) -> str:
    return ids.base62(chance.randbelow(62**length), length)
