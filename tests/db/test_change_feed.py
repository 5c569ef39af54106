"""The change feed continues after any failure of its database query."""

import asyncio
from collections.abc import Sequence

from structlog.testing import capture_logs

from payintent.db.notify import ChangeFeed, ChangeSubscriber, EventNotifier

_NOWHERE = "postgresql://nobody@127.0.0.1:9/nothing"


async def test_a_query_that_fails_because_of_a_bug_does_not_end_the_stream() -> None:
    query_count = 0

    async def change_markers(keys: Sequence[int]) -> dict[int, str]:
        nonlocal query_count
        query_count += 1
        if query_count == 1:
            raise KeyError("a bug")
        return dict.fromkeys(keys, "changed")

    wake = EventNotifier(_NOWHERE)
    feed = ChangeFeed[int](change_markers, wake, per_key_max=1)
    subscriber = ChangeSubscriber()
    with capture_logs() as lines, feed.subscribe(7, subscriber):
        async with asyncio.timeout(10):
            await subscriber.changed.wait()
    [failure] = [line for line in lines if line["event"] == "look_failed"]
    assert (failure["log_level"], repr(failure["exc_info"])) == ("error", "KeyError('a bug')")
