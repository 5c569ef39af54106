"""Build merchant catalogs whose bytes and ETag change only if their content changes."""

from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from hashlib import sha256

import msgspec

from payintent.core.countries import COUNTRY_NAMES
from payintent.core.money import CURRENCIES
from payintent.db.database import Database
from payintent.fraud.policy_cache import PolicyCache
from payintent.merchants import methods_store as method_store
from payintent.merchants.model import Market
from payintent.merchants.payable import Restrictions, list_payable_countries
from payintent.quotes.merchant_cache import MerchantCache, MerchantSetup
from payintent.runtime.json_format import encode_json, format_timestamp

_CACHE_SIZE = 1_000  # encoded catalogs, about 4 KiB each
_UNRESTRICTED = ""  # key for viewers from unrestricted countries


@dataclass(frozen=True, slots=True)
class CatalogDocument:
    """The JSON of spec section 2.3 and its strong ETag."""

    body: bytes
    etag: str


@dataclass(frozen=True, slots=True)
class _CachedCatalog:
    setup: MerchantSetup
    restricted_countries: frozenset[str]
    document: CatalogDocument


@dataclass(frozen=True, slots=True)
class _Content:
    countries: bytes
    hash: bytes


class Catalogs:
    """Builds each merchant's catalog once per configuration version."""

    def __init__(self, database: Database, merchants: MerchantCache, policies: PolicyCache) -> None:
        self._database = database
        self._merchants = merchants
        self._policies = policies
        self._catalogs: dict[tuple[int, str], _CachedCatalog] = {}

    async def get(self, merchant_id: int, viewer_country: str | None) -> CatalogDocument:
        """Return a merchant's catalog for viewers from a country, or from an unknown country."""
        restrictions = await self._policies.get_restrictions()
        viewer_country = viewer_country if viewer_country in restrictions.crypto_listed else None
        setup = await self._merchants.get(merchant_id)
        key = (merchant_id, viewer_country or _UNRESTRICTED)
        cached_catalog = self._catalogs.get(key)
        if (
            cached_catalog is None
            or cached_catalog.setup is not setup
            or cached_catalog.restricted_countries != restrictions.crypto
        ):
            document = await self._build(setup, restrictions.crypto, viewer_country)
            cached_catalog = _CachedCatalog(setup, restrictions.crypto, document)
            if len(self._catalogs) >= _CACHE_SIZE:
                self._catalogs.clear()
            self._catalogs[key] = cached_catalog
        return cached_catalog.document

    async def _build(
        self, setup: MerchantSetup, restricted_countries: frozenset[str], viewer_country: str | None
    ) -> CatalogDocument:
        merchant = setup.merchant
        markets = tuple(market for _, market in setup.payable_methods.methods)
        content = _encode_content(merchant.market, markets, restricted_countries, viewer_country)
        key = viewer_country or _UNRESTRICTED
        since = await _record_content(self._database, merchant.id, key, content.hash)
        return _build_document(content, since)


async def _record_content(
    database: Database, merchant_id: int, viewer_country: str, content_hash: bytes
) -> datetime:
    """Record a country's catalog content; return when its viewers were first shown this content."""
    records = await method_store.list_catalogs(database, merchant_id, viewer_country)
    catalogs = {record.viewer: record for record in records}
    if viewer_country in catalogs and catalogs[viewer_country].content_hash == content_hash:
        return catalogs[viewer_country].since
    general_catalog = catalogs.get(_UNRESTRICTED)
    # Viewers from a country without a recorded catalog have been shown the general catalog.
    since = (
        general_catalog.since
        if general_catalog is not None and general_catalog.content_hash == content_hash
        else None
    )
    return await method_store.record_catalog(
        database, merchant_id, viewer_country, content_hash, since
    )


@lru_cache(maxsize=_CACHE_SIZE)
def _encode_content(
    market: Market,
    markets: tuple[Market, ...],
    restricted_countries: frozenset[str],
    viewer_country: str | None,
) -> _Content:
    restrictions = Restrictions(crypto=restricted_countries)
    payable_countries = list_payable_countries(market, markets, restrictions, viewer_country)
    countries = [
        {
            "country_code": country,
            "name": COUNTRY_NAMES[country],
            "currencies": [
                {"currency": code, "decimals": CURRENCIES[code].display_decimals} for code in codes
            ],
        }
        for country, codes in payable_countries
    ]
    countries_json = msgspec.json.encode(countries)
    return _Content(countries_json, sha256(countries_json).digest())


@lru_cache(maxsize=_CACHE_SIZE)
def _build_document(content: _Content, updated_at: datetime) -> CatalogDocument:
    countries = msgspec.Raw(content.countries)
    body = encode_json({"updated_at": format_timestamp(updated_at), "countries": countries})
    return CatalogDocument(body, f'"{sha256(body).hexdigest()[:32]}"')
