"""A merchant's catalog: the same bytes and the same ETag until its content changes."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from hashlib import sha256

import msgspec

from payintent.domain.catalog import list_payable
from payintent.domain.countries import COUNTRY_NAMES
from payintent.domain.currencies import CURRENCIES
from payintent.domain.merchant import Market
from payintent.domain.restriction import Restrictions
from payintent.json_format import encode_json, format_timestamp
from payintent.payments.merchant_cache import MerchantCache, MerchantSetup
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
class _BuiltCatalog:
    setup: MerchantSetup
    restricted: frozenset[str]
    document: CatalogDocument


@dataclass(frozen=True, slots=True)
class _Content:
    countries: bytes
    hash: bytes


class Catalogs:
    """Builds merchants' catalogs, each once for a version of the configuration."""

    def __init__(self, database: Database, merchants: MerchantCache, policies: PolicyCache) -> None:
        self._database = database
        self._merchants = merchants
        self._policies = policies
        self._built: dict[tuple[int, str], _BuiltCatalog] = {}

    async def get(self, merchant_id: int, viewer: str | None) -> CatalogDocument:
        """Return what a merchant can be paid with where, for a viewer's country (None: unknown)."""
        restrictions = await self._policies.restrictions()
        listed = viewer if viewer in restrictions.crypto_listed else None
        setup = await self._merchants.get(merchant_id)
        key = (merchant_id, listed or _ANYBODY)
        built = self._built.get(key)
        if built is None or built.setup is not setup or built.restricted != restrictions.crypto:
            document = await self._build(setup, restrictions.crypto, listed)
            built = _BuiltCatalog(setup, restrictions.crypto, document)
            if len(self._built) >= _CACHED_MAX:
                self._built.clear()
            self._built[key] = built
        return built.document

    async def _build(
        self, setup: MerchantSetup, restricted: frozenset[str], listed: str | None
    ) -> CatalogDocument:
        merchant = setup.merchant
        reached = tuple(market for _, market in setup.payable.methods)
        content = _content(merchant.market, reached, restricted, listed)
        shown = await payment_methods.list_shown(self._database, merchant.id, listed or _ANYBODY)
        since = await _since(self._database, merchant.id, listed or _ANYBODY, shown, content.hash)
        return _written(content, since)


async def _since(
    database: Database,
    merchant_id: int,
    viewer: str,
    shown: Iterable[payment_methods.ShownCatalog],
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
