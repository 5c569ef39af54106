"""Restrictions by country (spec section 2.7): they only reduce what is offered."""

from dataclasses import dataclass
from enum import StrEnum


class RestrictionType(StrEnum):
    CRYPTO = "CRYPTO"  # crypto payment methods and catalog currencies
    ONRAMP = "ONRAMP"  # fiat-to-crypto on-ramp orders


@dataclass(frozen=True, slots=True)
class Restrictions:
    crypto: frozenset[str] = frozenset()
    onramp: frozenset[str] = frozenset()
    crypto_listed: frozenset[str] = frozenset()  # listed now or at any time before

    def allow_crypto(self, country: str | None, viewer: str | None) -> bool:
        """Tell whether crypto may be offered, by the country of the quotes and the viewer's.

        An unknown country (`None`) is on no list.
        """
        return self.crypto.isdisjoint({country, viewer})
