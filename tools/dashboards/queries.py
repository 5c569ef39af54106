"""Queries of PromQL that the panels share."""

from typing import NamedTuple

_RATE = "rate({}[$__rate_interval])"


class Panel(NamedTuple):
    """A graph: its queries by the legend of their series."""

    title: str
    unit: str
    queries: dict[str, str]


def rate(name: str, by: str = "", match: str = "") -> str:
    """Add up what a counter gains in a second."""
    summed = _RATE.format(f"{name}{{{match}}}" if match else name)
    return f"sum by ({by}) ({summed})" if by else f"sum({summed})"


def quantiles(name: str, match: str = "") -> dict[str, str]:
    """Take what half, and all but a few, of a histogram's observations stay below."""
    buckets = rate(f"{name}_bucket", "le", match)
    return {
        f"p{share:.0f}": f"histogram_quantile({share / 100:g}, {buckets})" for share in (50, 95, 99)
    }


def most(name: str, by: str = "") -> str:
    """Take a gauge that every worker has alike from any of them: the largest one."""
    return f"max by ({by}) ({name})" if by else f"max({name})"
