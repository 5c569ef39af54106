"""`payintent-cli logs tail`: print events and the state of their webhooks."""

from __future__ import annotations

import time

from payintent_sdk.errors import ApiError, NoAnswerError

from payintent_cli.feed import Entry, Feed, Page, pause_s
from payintent_cli.keys import Access

_WAIT_S = 25
_LOOK_AGAIN_S = 2  # while a delivery is pending
_PENDING = "pending"


def tail(access: Access, *, from_start: bool, follow: bool) -> None:
    """Print events as they arrive, and each change of their deliveries, until Ctrl-C."""
    with Feed(access) as feed:
        place = None if from_start else feed.newest()
        lines = _Lines()
        while True:
            place = _patiently(feed, place, lines, follow=follow)
            if not follow:
                return


def _patiently(feed: Feed, place: str | None, lines: _Lines, *, follow: bool) -> str | None:
    try:
        return _read_on(feed, place, lines, follow=follow)
    except (NoAnswerError, ApiError) as error:
        pause = pause_s(error)
        if not follow or pause is None:
            raise
        print(f"the service is unavailable ({error}); retrying", flush=True)
        time.sleep(pause)
        return place


def _read_on(feed: Feed, place: str | None, lines: _Lines, *, follow: bool) -> str | None:
    """Print new events after `place`. Return the position before the first pending delivery."""
    settled: str | None = place
    all_settled = True
    while True:
        page = feed.read(place, wait=0)
        lines.show(page)
        all_settled = all_settled and all(
            entry.delivery.state != _PENDING for entry in page.entries
        )
        place = page.after
        settled = place if all_settled else settled
        if not page.has_more:
            break
    if follow:
        wait = _WAIT_S if all_settled else _LOOK_AGAIN_S
        feed.read(place, wait=wait, limit=1)  # new events are read together with pending deliveries
    return settled


class _Lines:
    """The printed state of each event. A line is printed only if the state has changed."""

    def __init__(self) -> None:
        self._shown: dict[str, str] = {}

    def show(self, page: Page) -> None:
        for entry in page.entries:
            said = _said(entry)
            if self._shown.get(entry.id) != said:
                self._shown[entry.id] = said
                print(said, flush=True)


def _said(entry: Entry) -> str:
    at = entry.event.timestamp
    moment = at.strftime("%Y-%m-%d %H:%M:%SZ") if at else "-"
    delivery = entry.delivery
    attempts = f"{delivery.attempts} attempt{'' if delivery.attempts == 1 else 's'}"
    line = f"{moment}  {entry.event.type}  {entry.payment_id}  {delivery.state}, {attempts}"
    if delivery.next_attempt_at is not None:
        return f"{line}, next {delivery.next_attempt_at:%H:%M:%SZ}"
    return line
