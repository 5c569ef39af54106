"""Prints the results of `python -m drills.books`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from rich.console import Console
from rich.table import Table

from drills.books.judge import Books, FeedVerdict
from drills.books.pages import PagesVerdict

_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The results of the drill, which has failed if `is_clean` is false."""

    shops: int
    payments: int
    seconds: float
    statuses: Counter[str]
    answers: Counter[int]
    broken: int
    kills: Counter[str]
    events: int
    by_webhook: int  # events that were delivered by webhook
    feeds: Sequence[FeedVerdict]
    lost: Sequence[str]
    wrong: Sequence[str]
    unfinished: int
    stuck: Sequence[str]
    books: Books
    days: int
    unclosed: int  # merchants with a past day that is not closed
    pages: PagesVerdict

    @property
    def is_clean(self) -> bool:
        feeds = all(feed.is_clean for feed in self.feeds)
        bad = self.lost or self.wrong or self.unfinished or self.stuck or self.answers[500]
        stated = self.pages.is_clean and self.pages.pages and not self.unclosed
        return bool(feeds and not bad and self.books.is_clean and stated)


def show(outcome: Outcome, console: Console) -> None:
    table = Table(title="Ledger and event feeds under faults", show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right")
    for name, value in _rows(outcome):
        table.add_row(name, value)
    console.print(table)
    for word, failures in (
        ("lost", outcome.lost),
        ("wrong", outcome.wrong),
        ("stuck", outcome.stuck),
    ):
        for line in failures[:_SHOWN]:
            console.print(f"{word}: {line}", markup=False)
    console.print("passed" if outcome.is_clean else "FAILED")


def _rows(outcome: Outcome) -> list[tuple[str, str]]:
    books, counts = outcome.books, outcome.books.counts
    kills = ", ".join(f"{name} {count}" for name, count in sorted(outcome.kills.items()))
    ends = ", ".join(f"{name} {count:,}" for name, count in outcome.statuses.most_common())
    feeds, pages = outcome.feeds, outcome.pages
    return [
        ("payments, merchants", f"{outcome.payments:,}, {outcome.shops}"),
        ("time", f"{outcome.seconds:,.0f} s"),
        ("killed", kills),
        ("requests without a response", f"{outcome.broken:,}"),
        ("ended as", ends),
        ("payments lost, with a wrong status, unfinished",
         f"{len(outcome.lost)}, {len(outcome.wrong)}, {outcome.unfinished}"),
        ("events, events delivered by webhook", f"{outcome.events:,}, {outcome.by_webhook:,}"),
        ("duplicate events in feeds", str(sum(feed.doubled for feed in feeds))),
        ("events missing in feeds", str(sum(feed.missing for feed in feeds))),
        ("events in feeds but not in the database", str(sum(feed.unknown for feed in feeds))),
        ("events in the wrong order", str(sum(feed.misplaced for feed in feeds))),
        ("captures, captures without a payment",
         f"{counts['captures']:,}, {counts['uncredited']:,}"),
        ("refunds succeeded, failed", f"{counts['refunds']:,}, {counts['refunds_failed']:,}"),
        ("disputes, cases", f"{counts['disputes']:,}, {counts['cases']:,}"),
        ("payouts to merchants, from gateways",
         f"{counts['payouts']:,}, {counts['gateway_payouts']:,}"),
        ("ledger entries", f"{counts['entries']:,}"),
        ("ledger accounts that do not match", str(books.differences)),
        ("gateway balances in the ledger, minor units", _amounts(books.at_gateways)),
        ("gateway balances from captures and payouts",
         _amounts(books.at_gateways_by_facts)),
        ("days, including the open day", str(outcome.days)),
        ("merchants with unclosed days", str(outcome.unclosed)),
        ("statements, lines", f"{pages.pages:,}, {pages.lines:,}"),
        ("statements with a wrong opening balance", str(pages.torn)),
        ("statements with a wrong sum", str(pages.unsummed)),
        ("lines in two statements, or not in the ledger", f"{pages.doubled}, {pages.unknown}"),
        ("facts on the open day", f"{pages.open_facts:,}"),
        ("balances that do not match the statements", str(pages.unbalanced)),
        ("merchant balances, minor units", f"{pages.balance_minor:,}"),
    ]  # fmt: skip


def _amounts(by_currency: Mapping[str, Decimal]) -> str:
    return ", ".join(f"{amount:,} {currency}" for currency, amount in by_currency.items())
