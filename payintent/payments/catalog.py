"""A merchant's catalog: the same bytes and the same ETag until its content changes."""

from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from hashlib import sha256

import msgspec

from payintent.domain.catalog import list_payable
from payintent.domain.countries import COUNTRY_NAMES
from payintent.domain.currencies import CURRENCIES
from payintent.domain.merchant import Market
from payintent.domain.payable import reached_by_all
from payintent.domain.restriction import Restrictions
from payintent.json_format import encode_json, format_timestamp
from payintent.payments.gateway_accounts import GatewayAccounts
from payintent.payments.policy_cache import PolicyCache
from payintent.storage import payment_methods
from payintent.storage.database import Database

_CACHED_MAX = 1_000  # encoded catalogs in memory, some 4 KiB each
_ANYBODY = ""  # a viewer whose country was never restricted


@dataclass(frozen=True, slots=True)
class CatalogDocument:
    """The JSON of spec section 2.3 and its strong ETag."""

    body: bytes
    etag: str


@dataclass(frozen=True, slots=True)
class _Content:
    """The countries of a catalog as JSON, and their hash."""

    countries: bytes
    hash: bytes


async def build_catalog(
    database: Database,
    accounts: GatewayAccounts,
    policies: PolicyCache,
    merchant_id: int,
    viewer: str | None,
) -> CatalogDocument:
    """Return what a merchant can be paid with where, for a viewer's country (None: unknown)."""
    restrictions = await policies.restrictions()
    listed = viewer if viewer in restrictions.crypto_listed else None
    found = await payment_methods.range_of(database, merchant_id, listed or _ANYBODY)
    content = _content(
        found.market,
        reached_by_all(accounts.narrowed(method) for method in found.methods),
        restrictions.crypto,
        listed,
    )
    since = await _since(database, merchant_id, listed or _ANYBODY, found.shown, content.hash)
    return _written(content, since)


async def _since(
    database: Database,
    merchant_id: int,
    viewer: str,
    shown: tuple[payment_methods.Shown, ...],
    content_hash: bytes,
) -> datetime:
    """Return since when a viewer is shown this content; a change counts from its first view."""
    before = {catalog.viewer: catalog for catalog in shown}
    if viewer in before and before[viewer].content_hash == content_hash:
        return before[viewer].since
    anybody = before.get(_ANYBODY)
    # A country that gets a content of its own was shown the general one before.
    since = anybody.since if anybody is not None and anybody.content_hash == content_hash else None
    return await payment_methods.show(database, merchant_id, viewer, content_hash, since)


@lru_cache(maxsize=_CACHED_MAX)
def _content(
    market: Market, reached: tuple[Market, ...], restricted: frozenset[str], viewer: str | None
) -> _Content:
    listed = list_payable(market, reached, Restrictions(crypto=restricted), viewer)
    countries = [
        {
            "country_code": country,
            "name": COUNTRY_NAMES[country],
            "currencies": [
                {"currency": code, "decimals": CURRENCIES[code].display_decimals} for code in codes
            ],
        }
        for country, codes in listed
    ]
    encoded = msgspec.json.encode(countries)
    return _Content(encoded, sha256(encoded).digest())


@lru_cache(maxsize=_CACHED_MAX)
def _written(content: _Content, updated_at: datetime) -> CatalogDocument:
    countries = msgspec.Raw(content.countries)
    body = encode_json({"updated_at": format_timestamp(updated_at), "countries": countries})
    return CatalogDocument(body, f'"{sha256(body).hexdigest()[:32]}"')
