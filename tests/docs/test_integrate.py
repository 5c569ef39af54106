"""The merchant's page: its codes, cards, fields and waits are those of the code."""

import re
from datetime import timedelta

from payintent.api.errors import STATUS
from payintent.domain.errors import Code
from payintent.domain.event import EventType, payload_fields
from payintent.domain.payment import Status
from payintent.sandbox.simulator.cards import CARDS
from payintent.webhooks.schedule import ATTEMPTS_MAX, WAITS_S
from tests.docs.reading import ROOT, page, rows, section, spans

_INTEGRATE = page("docs/integrate.md")
_RAISED = re.compile(r"\bCode\.([A-Z_]+)\b(?!: \d)")  # but not the table of statuses
_UNITS = {"s": "seconds", "min": "minutes", "h": "hours"}


def test_the_table_of_errors_has_the_codes_that_the_service_can_answer() -> None:
    sources = [one.read_text() for one in ROOT.glob("payintent/**/*.py")]
    raised = {code for text in sources for code in _RAISED.findall(text)}
    assert set(_errors()) == raised


def test_the_table_of_errors_gives_the_status_of_each_code() -> None:
    for code, statuses in _errors().items():
        assert str(STATUS[Code(code)]) in statuses.split(", "), code


def _errors() -> dict[str, str]:
    return {cells[0].strip("`"): cells[1] for cells in rows(section(_INTEGRATE, "## Errors"))}


def test_the_table_of_statuses_has_all_of_them() -> None:
    named = [cells[0] for cells in rows(section(_INTEGRATE, "### Statuses"))]
    assert spans("\n".join(named)) == [status.value for status in Status]


def test_the_table_of_cards_is_that_of_the_simulator() -> None:
    cards = [cells[0].strip("`") for cells in rows(section(_INTEGRATE, "## Test cards"))]
    assert cards == list(CARDS)


def test_each_event_is_documented_with_its_fields_in_order() -> None:
    documented = {
        cells[0].strip("`"): spans(cells[1])
        for cells in rows(section(_INTEGRATE, "## Webhooks"))
        if cells[0].strip("`").startswith("payment.")
    }
    assert documented == {kind.value: list(payload_fields(kind)) for kind in EventType}


def test_the_waits_between_attempts_are_those_of_the_schedule() -> None:
    text = section(_INTEGRATE, "### Attempts")
    [line] = [one for one in text.splitlines() if one.startswith("at once, ")]
    waits = re.findall(r"(\d+) (s|min|h)\b", line)
    read = [timedelta(**{_UNITS[unit]: int(number)}).total_seconds() for number, unit in waits]
    assert [0, *read] == list(WAITS_S)
    assert text.strip().startswith("Thirteen")
    assert ATTEMPTS_MAX == 13
