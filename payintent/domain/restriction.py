"""Restrictions of the offer by country (spec section 2.7)."""

from dataclasses import dataclass
from enum import StrEnum


class RestrictionType(StrEnum):
    CRYPTO = "CRYPTO"  # crypto payment methods and catalog currencies
    ONRAMP = "ONRAMP"  # fiat-to-crypto on-ramp orders


@dataclass(frozen=True, slots=True)
class Restrictions:
    crypto: frozenset[str] = frozenset()
    onramp: frozenset[str] = frozenset()
    crypto_listed: frozenset[str] = frozenset()  # restricted now or at any time before

    def allow_crypto(self, country: str | None, viewer: str | None) -> bool:
        """Return whether neither the country of the quotes nor the viewer's is restricted.

        An unknown country (None) is not restricted.
        """
        return self.crypto.isdisjoint({country, viewer})
