"""PromQL queries shared by the panels."""

from typing import NamedTuple

_RATE = "rate({}[$__rate_interval])"


class Panel(NamedTuple):
    """A graph. `queries` maps a legend to its query."""

    title: str
    unit: str
    queries: dict[str, str]


def rate(name: str, by: str = "", match: str = "") -> str:
    """Return the summed per-second rate of a counter."""
    summed = _RATE.format(f"{name}{{{match}}}" if match else name)
    return f"sum by ({by}) ({summed})" if by else f"sum({summed})"


def quantiles(name: str, match: str = "") -> dict[str, str]:
    """Return the 50th, 95th and 99th percentiles of a histogram."""
    buckets = rate(f"{name}_bucket", "le", match)
    return {
        f"p{share:.0f}": f"histogram_quantile({share / 100:g}, {buckets})" for share in (50, 95, 99)
    }


def most(name: str, by: str = "") -> str:
    """Return the maximum of a gauge over all workers, which report the same value."""
    return f"max by ({by}) ({name})" if by else f"max({name})"
