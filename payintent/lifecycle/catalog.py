"""A merchant's catalog as it is shown: the same bytes and the same tag until something changes."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from hashlib import sha256

from payintent.domain.catalog import payable, reach
from payintent.domain.market import COUNTRY_NAMES, CRYPTO, CURRENCIES
from payintent.domain.merchant import Market
from payintent.domain.restriction import Restrictions
from payintent.lifecycle.policies import Policies
from payintent.lifecycle.wire import encode, timestamp
from payintent.storage import methods
from payintent.storage.database import Database

_TOKENS = frozenset(CRYPTO)
_KEPT_MAX = 1_000  # written catalogs in memory, some 4 KiB each


@dataclass(frozen=True, slots=True)
class Catalog:
    """The JSON of spec section 2.3 and its strong tag."""

    body: bytes
    etag: str


async def catalog_for(
    database: Database, policies: Policies, merchant_id: int, viewer: str | None
) -> Catalog:
    """Give what a merchant can be paid with where, to a viewer from a country (None: unknown)."""
    known = await methods.reach(database, merchant_id)
    restrictions = await policies.restrictions()
    changed = [known.changed_at]
    changed += _restricted_since(reach(known.market, known.methods), restrictions, viewer)
    return _written(
        known.market,
        known.methods,
        restrictions.crypto,
        viewer if viewer in restrictions.crypto else None,
        max(changed),
    )


def _restricted_since(
    reached: Mapping[str, tuple[str, ...]], restrictions: Restrictions, viewer: str | None
) -> list[datetime]:
    """Tell when a restriction last changed what a viewer sees of these countries' tokens."""
    changed = restrictions.crypto_changed
    with_tokens = {country for country, codes in reached.items() if not _TOKENS.isdisjoint(codes)}
    if not with_tokens:
        return []
    if viewer in restrictions.crypto:  # then there are none to see
        return [changed[viewer]]
    return [at for country, at in changed.items() if country in with_tokens | {viewer}]


@lru_cache(maxsize=_KEPT_MAX)
def _written(
    market: Market,
    usable: tuple[Market, ...],
    restricted: frozenset[str],
    viewer: str | None,
    updated_at: datetime,
) -> Catalog:
    listed = payable(market, usable, Restrictions(crypto=restricted), viewer)
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
    body = encode({"updated_at": timestamp(updated_at), "countries": countries})
    return Catalog(body, f'"{sha256(body).hexdigest()[:32]}"')
