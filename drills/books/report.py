"""The table of `python -m drills.books`."""

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
    """All that is shown; the drill has failed where `is_clean` is false."""

    shops: int
    payments: int
    seconds: float
    statuses: Counter[str]
    answers: Counter[int]
    broken: int
    kills: Counter[str]
    events: int
    by_webhook: int  # events that a webhook brought
    feeds: Sequence[FeedVerdict]
    lost: Sequence[str]
    wrong: Sequence[str]
    unfinished: int
    stuck: Sequence[str]
    books: Books
    days: int
    unclosed: int  # merchants with a day that is over and not closed
    pages: PagesVerdict

    @property
    def is_clean(self) -> bool:
        """Tell whether nothing was lost, doubled, misplaced or wrong in the books."""
        feeds = all(feed.is_clean for feed in self.feeds)
        bad = self.lost or self.wrong or self.unfinished or self.stuck or self.answers[500]
        stated = self.pages.is_clean and self.pages.pages and not self.unclosed
        return bool(feeds and not bad and self.books.is_clean and stated)


def show(outcome: Outcome, console: Console) -> None:
    """Print it."""
    shown = Table(title="Books and feeds under kills, lies and delays", show_header=False)
    shown.add_column(no_wrap=True)
    shown.add_column(justify="right")
    for name, value in _rows(outcome):
        shown.add_row(name, value)
    console.print(shown)
    for word, found in (("lost", outcome.lost), ("wrong", outcome.wrong), ("stuck", outcome.stuck)):
        for line in found[:_SHOWN]:
            console.print(f"{word}: {line}", markup=False)
    console.print("all is well" if outcome.is_clean else "NOT WELL")


def _rows(outcome: Outcome) -> list[tuple[str, str]]:
    books, counts = outcome.books, outcome.books.counts
    kills = ", ".join(f"{name} {count}" for name, count in sorted(outcome.kills.items()))
    ends = ", ".join(f"{name} {count:,}" for name, count in outcome.statuses.most_common())
    feeds, pages = outcome.feeds, outcome.pages
    return [
        ("payments, merchants", f"{outcome.payments:,}, {outcome.shops}"),
        ("time", f"{outcome.seconds:,.0f} s"),
        ("killed", kills),
        ("requests without an answer", f"{outcome.broken:,}"),
        ("ended as", ends),
        ("payments lost, ended wrongly, not ended",
         f"{len(outcome.lost)}, {len(outcome.wrong)}, {outcome.unfinished}"),
        ("events, of which webhooks had brought", f"{outcome.events:,}, {outcome.by_webhook:,}"),
        ("events twice in a feed's journal", str(sum(feed.doubled for feed in feeds))),
        ("events missing in it", str(sum(feed.missing for feed in feeds))),
        ("events that were never stored", str(sum(feed.unknown for feed in feeds))),
        ("events out of order", str(sum(feed.misplaced for feed in feeds))),
        ("captures, of which for no payment", f"{counts['captures']:,}, {counts['uncredited']:,}"),
        ("refunds done, failed", f"{counts['refunds']:,}, {counts['refunds_failed']:,}"),
        ("disputes, cases", f"{counts['disputes']:,}, {counts['cases']:,}"),
        ("payouts to merchants, of gateways",
         f"{counts['payouts']:,}, {counts['gateway_payouts']:,}"),
        ("ledger entries", f"{counts['entries']:,}"),
        ("accounts that differ from the facts", str(books.differences)),
        ("at gateways by the ledger, minor units", _amounts(books.at_gateways)),
        ("the same by captures, refunds, disputes, payouts",
         _amounts(books.at_gateways_by_facts)),
        ("days, of which the last stays open", str(outcome.days)),
        ("merchants with a day that is not closed", str(outcome.unclosed)),
        ("statements, lines in them", f"{pages.pages:,}, {pages.lines:,}"),
        ("that do not begin where the one before ended", str(pages.torn)),
        ("whose movements or lines are not closing less opening", str(pages.unsummed)),
        ("lines that are in two, or not in the ledger", f"{pages.doubled}, {pages.unknown}"),
        ("facts of the open day", f"{pages.open_facts:,}"),
        ("balances that are not last closing and open day", str(pages.unbalanced)),
        ("owed to merchants, minor units", f"{pages.owed:,}"),
    ]  # fmt: skip


def _amounts(by_currency: Mapping[str, Decimal]) -> str:
    return ", ".join(f"{amount:,} {currency}" for currency, amount in by_currency.items())
