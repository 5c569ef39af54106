"""How many installations a load needs, by the cost model: `python -m bench.scale`.

The costs are those of `bench.cost` and `bench.stored`; give those of your own run.
"""

import argparse
import math
from collections.abc import Iterable
from dataclasses import dataclass, fields

#: The rows of the tables: payments per second, and stored payments.
RATES = (1_000, 5_000, 10_000, 50_000, 100_000)
KEPT = (10**8, 10**9, 10**10, 10**11)
_US = 1_000_000
_TB = 10**12


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A primary, and how much of it is to be used."""

    cores: int = 16
    busy: float = 0.6  # the rest is for peaks, vacuum and replicas
    disk_tb: float = 4.0  # of payments; backups and moves of more take long


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a payment costs from its create to its webhook."""

    database_us: float = 1_412.0
    create_us: float = 103.0  # of the database, of these
    service_us: float = 3_044.0
    stored_bytes: float = 6_690.0  # before a VACUUM FULL

    def primaries_for_rate(self, per_s: float, host: Host, us: float) -> int:
        """Give how many primaries carry so many a second, at so many microseconds each."""
        return math.ceil(per_s * us / _US / (host.cores * host.busy))

    def primaries_for_payments(self, kept: float, host: Host) -> int:
        """Give how many primaries hold so many payments."""
        return math.ceil(self.terabytes(kept) / host.disk_tb)

    def terabytes(self, kept: float) -> float:
        """Give what so many payments take on disk, with their indexes."""
        return kept * self.stored_bytes / _TB

    def service_cores(self, per_s: float, host: Host) -> int:
        """Give how many cores the service needs beside the databases."""
        return math.ceil(per_s * self.service_us / _US / host.busy)


def rate_table(cost: Cost, host: Host) -> Iterable[str]:
    """Give the lines of the table of rates, in Markdown."""
    yield "| payments per second | installations | creates only | service cores | TB per year |"
    yield "|---|---|---|---|---|"
    for rate in RATES:
        whole = cost.primaries_for_rate(rate, host, cost.database_us)
        creates = cost.primaries_for_rate(rate, host, cost.create_us)
        year = cost.terabytes(rate * 86_400 * 365)
        cores = cost.service_cores(rate, host)
        yield f"| {rate:,} | {whole} | {creates} | {cores:,} | {year:,.0f} |"


def kept_table(cost: Cost, host: Host) -> Iterable[str]:
    """Return the lines of the table of stored payments, in Markdown."""
    yield "| stored payments | TB | installations |"
    yield "|---|---|---|"
    for kept in KEPT:
        count = cost.primaries_for_payments(kept, host)
        yield f"| 10^{round(math.log10(kept))} | {cost.terabytes(kept):,.2f} | {count} |"


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale")
    cost, host = Cost(), Host()
    for part in (cost, host):
        for field in fields(part):
            value = getattr(part, field.name)
            name = f"--{field.name.replace('_', '-')}"
            parser.add_argument(name, type=type(value), default=value, help=f"now {value:g}")
    given = vars(parser.parse_args())
    host = Host(**{field.name: given[field.name] for field in fields(host)})
    cost = Cost(**{field.name: given[field.name] for field in fields(cost)})
    print("\n".join([*rate_table(cost, host), "", *kept_table(cost, host)]))


if __name__ == "__main__":
    main()
