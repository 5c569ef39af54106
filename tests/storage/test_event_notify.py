"""Notifiers and listeners say which cell they have lost."""

import asyncio

import pytest
from structlog.testing import capture_logs

from payintent.storage.event_notify import EventNotifier
from tests.support.patience import until

_NOWHERE = "postgresql://nobody@127.0.0.1:9/nothing"


@pytest.mark.parametrize(("cell", "named"), [(0, {}), (3, {"cell": 3})])
async def test_a_lost_connection_names_its_cell_if_it_is_not_cell_0(
    cell: int, named: dict[str, int]
) -> None:
    notifier = EventNotifier(_NOWHERE, cell=cell)
    with capture_logs() as lines:
        listening = asyncio.create_task(notifier.listen(lambda: None))
        notifier.notify()
        await until(lambda: len(lines) == 2, "both are lost")
        listening.cancel()
        await asyncio.gather(listening, notifier.close(), return_exceptions=True)
    assert {line["event"] for line in lines} == {"listener_lost", "notifier_lost"}
    assert [{name: line[name] for name in line if name == "cell"} for line in lines] == [named] * 2
