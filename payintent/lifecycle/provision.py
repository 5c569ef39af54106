"""What the operator sets up: merchants, API keys, callback secrets, accounts and methods."""

import base64
import secrets as chance
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from uuid import UUID

import msgspec

from payintent.domain import apikey, ids
from payintent.domain.errors import Code, Refused
from payintent.domain.market import FIAT
from payintent.domain.merchant import Merchant
from payintent.domain.quote import FeeMode
from payintent.lifecycle import accounts
from payintent.lifecycle.mint import Mint
from payintent.storage import merchants, methods, operators
from payintent.storage.database import Database, Tx
from payintent.storage.sealed import Secrets, SecretsUnusable

_NONCE_BYTES = 12
_SECRET_BYTES = 32
_MERCHANT_NAME_MAX = 200
_NAME_MAX = 100
SECRETS_MAX = 3  # that sign one delivery
OVERLAP_DEFAULT_S = 24 * 3600
OVERLAP_MAX_S = 7 * 24 * 3600

_CARD_FEE = Decimal("0.029")
_TRANSFER_FEE = Decimal("0.01")


@dataclass(frozen=True, slots=True)
class NewMerchant:
    """A merchant and the two secrets that are shown this once."""

    merchant: Merchant
    api_key: str
    callback_secret: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Provisioner:
    """What provisioning works with."""

    database: Database
    secrets: Secrets
    mint: Mint

    async def check_secrets(self) -> None:
        """Refuse (`SecretsUnusable`) to work on a database that knows other secrets than ours."""
        known = await merchants.fingerprint(self.database, self.secrets.fingerprint)
        if known != self.secrets.fingerprint:
            raise SecretsUnusable(
                "the pepper or the key ring is not the one that this database is used with"
            )

    async def create_merchant(
        self, name: str, callback_url: str | None, *, all_methods: bool
    ) -> NewMerchant:
        """Register a merchant with a key and a callback secret; the URL was checked before."""
        _check_name(name, _MERCHANT_NAME_MAX)
        async with self.database.transaction() as tx:
            merchant = await merchants.add(tx, name, callback_url)
            key = await self._issue(tx, merchant.id, "first")
            secret = await self._add_secret(tx, merchant.id)
            if all_methods:
                await self._provision_all(tx, merchant.id)
        return NewMerchant(merchant, key, secret)

    async def set_callback_url(self, merchant_id: int, callback_url: str | None) -> None:
        """Send a merchant's webhooks elsewhere; the URL was checked before."""
        async with self.database.transaction() as tx:
            await merchants.set_callback_url(tx, merchant_id, callback_url)

    async def set_return_url(self, merchant_id: int, return_url: str | None) -> None:
        """Set where buyers go back to; its origin is one that selections may name."""
        async with self.database.transaction() as tx:
            await merchants.set_return_url(tx, merchant_id, return_url)

    async def issue_key(self, merchant_id: int, name: str) -> str:
        """Issue another API key; it is shown this once."""
        _check_name(name or "-", _NAME_MAX)
        await self._known(merchant_id)
        async with self.database.transaction() as tx:
            return await self._issue(tx, merchant_id, name)

    async def revoke_key(self, public_id: str) -> merchants.ApiKey:
        """Revoke an API key for good."""
        async with self.database.transaction() as tx:
            key = await merchants.revoke_key(tx, public_id)
        if key is None:
            raise Refused(Code.NOT_FOUND, f"no key {public_id!r}")
        return key

    async def issue_token(self, name: str) -> str:
        """Issue an operator's token; it is shown this once."""
        _check_name(name, _NAME_MAX)
        token = apikey.make(
            apikey.OPERATOR, _base62(apikey.PUBLIC_CHARS), _base62(apikey.SECRET_CHARS)
        )
        async with self.database.transaction() as tx:
            await operators.add(tx, token.public_id, name, self.secrets.digest(token.text))
        return token.text

    async def revoke_token(self, public_id: str) -> operators.Token:
        """Revoke an operator's token for good."""
        async with self.database.transaction() as tx:
            token = await operators.revoke(tx, public_id)
        if token is None:
            raise Refused(Code.NOT_FOUND, f"no operator token {public_id!r}")
        return token

    async def rotate_secret(self, merchant_id: int, overlap_s: int) -> str:
        """Make a new callback secret; the old ones sign along until the overlap is over."""
        if not 0 <= overlap_s <= OVERLAP_MAX_S:
            raise Refused(Code.BAD_REQUEST, f"overlap must be from 0 to {OVERLAP_MAX_S} seconds")
        await self._known(merchant_id)
        async with self.database.transaction() as tx:
            await merchants.retire_secrets(tx, merchant_id, overlap_s)
            return await self._add_secret(tx, merchant_id)

    async def add_account(
        self, provider: str, base_url: str, credentials: Mapping[str, str]
    ) -> int:
        """Add a platform account at a provider, its credentials sealed to its id."""
        async with self.database.transaction() as tx:
            account_id = await methods.add_account(tx, provider, None, base_url)
            await self._seal_account(tx, account_id, base_url, credentials)
        return account_id

    async def update_account(
        self, account_id: int, base_url: str, credentials: Mapping[str, str]
    ) -> None:
        """Give an account another address or other credentials."""
        async with self.database.transaction() as tx:
            await self._seal_account(tx, account_id, base_url, credentials)

    async def _known(self, merchant_id: int) -> None:
        if await merchants.by_id(self.database, merchant_id) is None:
            raise Refused(Code.NOT_FOUND, f"no merchant {merchant_id}")

    async def _issue(self, tx: Tx, merchant_id: int, name: str) -> str:
        key = apikey.make(
            apikey.MERCHANT, _base62(apikey.PUBLIC_CHARS), _base62(apikey.SECRET_CHARS)
        )
        await merchants.add_key(tx, key.public_id, merchant_id, name, self.secrets.digest(key.text))
        return key.text

    async def _add_secret(self, tx: Tx, merchant_id: int) -> str:
        secret_id, secret = self.mint.id(), chance.token_bytes(_SECRET_BYTES)
        sealed = self.secrets.seal(
            secret, secret_place(merchant_id, secret_id), chance.token_bytes(_NONCE_BYTES)
        )
        await merchants.add_secret(tx, secret_id, merchant_id, sealed)
        return "whsec_" + base64.b64encode(secret).decode()

    async def _seal_account(
        self, tx: Tx, account_id: int, base_url: str, credentials: Mapping[str, str]
    ) -> None:
        sealed = self.secrets.seal(
            msgspec.json.encode(dict(credentials)),
            accounts.place(account_id),
            chance.token_bytes(_NONCE_BYTES),
        )
        await methods.seal_account(tx, account_id, base_url, sealed)

    async def _provision_all(self, tx: Tx, merchant_id: int) -> None:
        """Offer what every platform account can do: a card, and a transfer that costs less."""
        position = 0
        for account in await methods.platform_accounts(tx):
            for kind, label, rate in (
                ("card", "Card", _CARD_FEE),
                ("redirect", "Bank transfer", _TRANSFER_FEE),
            ):
                await methods.add(
                    tx,
                    methods.NewMethod(
                        merchant_id=merchant_id,
                        account_id=account.id,
                        kind=kind,
                        label=label,
                        currencies=tuple(FIAT),
                        countries=None,
                        fee_mode=FeeMode.INCLUSIVE,
                        fee_rate=rate,
                        position=position,
                    ),
                )
                position += 1


def secret_place(merchant_id: int, secret_id: UUID) -> str:
    """Name the place that a callback secret is sealed for."""
    return f"callback_secret:{merchant_id}:{secret_id}"


def _check_name(name: str, longest: int) -> None:
    if not 1 <= len(name) <= longest or not name.isprintable():
        raise Refused(Code.BAD_REQUEST, f"a name has 1 to {longest} printable characters")


def _base62(length: int) -> str:
    return ids.base62(chance.randbelow(62**length), length)
