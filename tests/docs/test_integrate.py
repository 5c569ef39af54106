"""The statuses, cards, fields and delays on the merchants' pages match the code."""

import json
import re
from datetime import timedelta

from payintent.http.docs.documents import read_openapi_document
from payintent.payments.model import PaymentStatus
from payintent.runtime.settings import Settings
from payintent.webhooks.model import EventType, list_event_payload_fields
from payintent.webhooks.retry_schedule import ATTEMPTS_MAX, WAITS_S
from payintent_sandbox.emulators.ecpay.cards import CARDS as ECPAY_CARDS
from payintent_sandbox.emulators.simulator.cards import CARDS
from payintent_sandbox.emulators.stripe.model import CARDS as STRIPE_CARDS
from payintent_sandbox.emulators.twoc2p.cards import CARDS as TWOC2P_CARDS
from tests.docs.parse_pages import blocks, page, rows, section, spans

_PAYMENTS = page("docs/integrate/payments.md")
_REFERENCE = page("docs/integrate/reference.md")
_TESTING = page("docs/integrate/testing.md")
_WEBHOOKS = page("docs/integrate/webhooks.md")
_UNITS = {"s": "seconds", "min": "minutes", "h": "hours"}


def test_the_table_of_statuses_is_complete() -> None:
    status_cells = [cells[0] for cells in rows(section(_PAYMENTS, "## Statuses"))]
    assert spans("\n".join(status_cells)) == [status.value for status in PaymentStatus]


def test_the_table_of_test_cards_matches_the_simulator() -> None:
    cards = [cells[0].strip("`") for cells in rows(section(_TESTING, "### Simulator"))]
    assert cards == list(CARDS)


def test_the_tables_of_test_cards_match_the_gateway_emulators() -> None:
    text = section(_TESTING, "### Stripe, ECPay and 2C2P")
    cards = [cells[0].strip("`") for cells in rows(text)]
    assert cards == [*STRIPE_CARDS, *ECPAY_CARDS, *TWOC2P_CARDS]


def test_each_event_is_documented_with_its_fields_in_order() -> None:
    documented = {
        cells[0].strip("`"): spans(cells[1])
        for cells in rows(_WEBHOOKS)
        if cells[0].strip("`").startswith("payment.")
    }
    assert documented == {kind.value: list(list_event_payload_fields(kind)) for kind in EventType}


def test_the_retry_delays_match_the_schedule() -> None:
    text = section(_WEBHOOKS, "## Retries")
    [line] = [item for item in text.splitlines() if item.startswith("5 s, ")]
    waits = re.findall(r"(\d+) (s|min|h)\b", line)
    waits_s = [timedelta(**{_UNITS[unit]: int(number)}).total_seconds() for number, unit in waits]
    assert [0, *waits_s] == list(WAITS_S)
    assert "up to thirteen attempts" in text
    assert ATTEMPTS_MAX == 13


def test_the_denial_example_matches_the_contract() -> None:
    [denial] = [json.loads(block) for block in blocks(_PAYMENTS, "json") if "fds" in block]
    fds = read_openapi_document()["components"]["schemas"]["FraudDecision"]
    assert list(denial["fds"]) == fds["required"]
    assert denial["fds"]["risk_level"] in fds["properties"]["risk_level"]["enum"]


def test_the_rate_limits_on_the_page_match_the_defaults() -> None:
    text = section(_REFERENCE, "## Rate limits")
    defaults = {name: field.default for name, field in Settings.model_fields.items()}
    per_second = f"{defaults['rate_create_per_s']} and {defaults['rate_read_per_s']:,}"
    assert f"{per_second} requests per second" in " ".join(text.split())
    assert f"q={defaults['rate_create_per_s']};w=1" in text
    assert defaults["rate_create_burst"] == 2 * defaults["rate_create_per_s"]
    assert defaults["rate_read_burst"] == 2 * defaults["rate_read_per_s"]
