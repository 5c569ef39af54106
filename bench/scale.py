"""`python -m bench.scale`: compute how many installations a load needs, with the cost model.

The defaults are costs measured by `bench.cost` and `bench.disk_space`. To use
the costs from your own run, pass them as options.
"""

import argparse
import math
from collections.abc import Iterable
from dataclasses import dataclass, fields

#: The rows of the tables: payments per second, and stored payments.
RATES = (1_000, 5_000, 10_000, 50_000, 100_000)
PAYMENT_COUNTS = (10**8, 10**9, 10**10, 10**11)
_US = 1_000_000
_TB = 10**12


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A primary, and the share of its capacity that may be used."""

    cores: int = 16
    busy: float = 0.6  # the rest is reserved for peaks, vacuum and replicas
    disk_tb: float = 4.0  # for payments; more data makes backups and migrations slow


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The cost of a payment, from its creation to its webhook."""

    database_us: float = 1_412.0
    create_us: float = 103.0  # the part of `database_us` for the creation
    service_us: float = 3_044.0
    stored_bytes: float = 6_690.0  # before VACUUM FULL

    def primaries_for_rate(self, per_s: float, host: Host, us: float) -> int:
        """Return the number of primaries for a rate, with this many microseconds per payment."""
        return math.ceil(per_s * us / _US / (host.cores * host.busy))

    def primaries_for_payments(self, payment_count: float, host: Host) -> int:
        """Return the number of primaries for this many stored payments."""
        return math.ceil(self.terabytes(payment_count) / host.disk_tb)

    def terabytes(self, payment_count: float) -> float:
        """Return the disk space for this many payments, including indexes, in terabytes."""
        return payment_count * self.stored_bytes / _TB

    def service_cores(self, per_s: float, host: Host) -> int:
        """Return the number of cores that the service needs in addition to the databases."""
        return math.ceil(per_s * self.service_us / _US / host.busy)


def rate_table(cost: Cost, host: Host) -> Iterable[str]:
    """Return the lines of the rate table, in Markdown."""
    yield "| payments per second | installations | creates only | service cores | TB per year |"
    yield "|---|---|---|---|---|"
    for rate in RATES:
        whole = cost.primaries_for_rate(rate, host, cost.database_us)
        creates = cost.primaries_for_rate(rate, host, cost.create_us)
        year = cost.terabytes(rate * 86_400 * 365)
        cores = cost.service_cores(rate, host)
        yield f"| {rate:,} | {whole} | {creates} | {cores:,} | {year:,.0f} |"


def kept_table(cost: Cost, host: Host) -> Iterable[str]:
    """Return the lines of the table for stored payments, in Markdown."""
    yield "| stored payments | TB | installations |"
    yield "|---|---|---|"
    for payment_count in PAYMENT_COUNTS:
        count = cost.primaries_for_payments(payment_count, host)
        exponent = round(math.log10(payment_count))
        yield f"| 10^{exponent} | {cost.terabytes(payment_count):,.2f} | {count} |"


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale")
    cost, host = Cost(), Host()
    for part in (cost, host):
        for field in fields(part):
            value = getattr(part, field.name)
            name = f"--{field.name.replace('_', '-')}"
            parser.add_argument(name, type=type(value), default=value, help=f"default: {value:g}")
    values = vars(parser.parse_args())
    host = Host(**{field.name: values[field.name] for field in fields(host)})
    cost = Cost(**{field.name: values[field.name] for field in fields(cost)})
    print("\n".join([*rate_table(cost, host), "", *kept_table(cost, host)]))


if __name__ == "__main__":
    main()
