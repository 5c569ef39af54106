"""Each status that the pages document for a code is a status of that code."""

import re
from pathlib import Path

import pytest

from payintent.gateways.port import GatewayCapabilities, GatewayRefundState, GatewaySessionState
from payintent.http.docs.documents import read_openapi_document
from tests.docs.parse_pages import PAGES, name, page, prose, rows, section

_ANSWER = re.compile(r"\b([1-5]\d\d) `([A-Z]+(?:_[A-Z]+)*)`")
_STATUSES = {item["code"]: set(item["status"]) for item in read_openapi_document()["x-error-codes"]}
_PORT = page("docs/contribute/gateway-port.md")


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_every_status_on_a_page_is_a_status_of_its_error_code(path: Path) -> None:
    pairs = _ANSWER.findall(prose(path.read_text()))
    wrong = [pair for pair in pairs if int(pair[0]) not in _STATUSES.get(pair[1], set())]
    assert wrong == []


def test_the_table_of_next_actions_has_every_type_in_the_contract() -> None:
    types = read_openapi_document()["components"]["schemas"]["NextAction"]["discriminator"][
        "mapping"
    ]
    text = section(page("docs/integrate/checkout.md"), "### Select a method")
    table = text.partition("| Type |")[2].partition("\n\n")[0]
    assert sorted(cells[0].strip("`") for cells in rows(table)) == sorted(types)


def test_the_gateway_port_tables_have_every_capability_and_state() -> None:
    port = (
        section(_PORT, "## Methods and capabilities").partition("| Field |")[2].partition("\n\n")[0]
    )
    assert _read_first_column(port) == set(GatewayCapabilities.__dataclass_fields__)
    outcomes = section(_PORT, "## Results")
    for head, states in (
        ("`GatewaySessionState`", GatewaySessionState),
        ("`GatewayRefundState`", GatewayRefundState),
    ):
        table = outcomes.partition(f"| {head} |")[2].partition("\n\n")[0]
        assert _read_first_column(table) == set(states.__members__)


def _read_first_column(table: str) -> set[str]:
    return {cells[0].strip("`") for cells in rows(table)}
