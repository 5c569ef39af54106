"""Notifiers and listeners log when they lose their connection."""

import asyncio

from structlog.testing import capture_logs

from payintent.db.notify import EventNotifier
from tests.support.timeouts import wait_until

_NOWHERE = "postgresql://nobody@127.0.0.1:9/nothing"


async def test_a_lost_connection_is_logged_with_its_reason() -> None:
    notifier = EventNotifier(_NOWHERE)
    with capture_logs() as lines:
        listening = asyncio.create_task(notifier.listen(lambda: None))
        notifier.notify()
        await wait_until(lambda: len(lines) == 2, "both connections are lost")
        listening.cancel()
        await asyncio.gather(listening, notifier.close(), return_exceptions=True)
    assert {line["event"] for line in lines} == {"listener_lost", "notifier_lost"}
    assert {line["why"] for line in lines} == {"ConnectionError"}
