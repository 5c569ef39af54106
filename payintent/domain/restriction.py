"""Country-level restrictions (spec section 2.7): they narrow what is offered, and nothing else."""

from dataclasses import dataclass
from enum import StrEnum


class RestrictionType(StrEnum):
    """What is restricted."""

    CRYPTO = "CRYPTO"  # crypto payment methods and catalog currencies
    ONRAMP = "ONRAMP"  # fiat-to-crypto on-ramp orders


@dataclass(frozen=True, slots=True)
class Restrictions:
    """The active restrictions."""

    crypto: frozenset[str] = frozenset()
    onramp: frozenset[str] = frozenset()
    crypto_listed: frozenset[str] = frozenset()  # restricted now, or once

    def allow_crypto(self, country: str | None, viewer: str | None) -> bool:
        """Tell whether crypto may be offered: to buyers of a country, seen from the viewer's.

        An unknown country (`None`) is on no list.
        """
        return self.crypto.isdisjoint({country, viewer})
