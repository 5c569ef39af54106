"""The three chains and their tokens (spec section 2.6)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Token:
    """A token on one chain; `decimals` are those of the chain, not of the display."""

    symbol: str
    decimals: int
    native: bool = False  # the chain's own coin, which has no contract


@dataclass(frozen=True, slots=True)
class Chain:
    """An EVM chain."""

    slug: str
    name: str
    network_id: int
    tokens: tuple[Token, ...]


CHAINS: Mapping[str, Chain] = {
    chain.slug: chain
    for chain in (
        Chain("ethereum", "Ethereum", 1, (Token("USDT", 6),)),
        Chain("bsc", "BNB Smart Chain", 56, (Token("USDT", 18),)),
        Chain("native", "Native", 612055, (Token("USDT", 18), Token("NATIVED", 18, native=True))),
    )
}


def chain_fields(chain: Chain) -> dict[str, Any]:
    """Give a chain as `GET /chains/{slug}` shows it."""
    return {
        "slug": chain.slug,
        "name": chain.name,
        "network_id": chain.network_id,
        "tokens": [
            {"symbol": token.symbol, "decimals": token.decimals, "native": token.native}
            for token in chain.tokens
        ],
    }
