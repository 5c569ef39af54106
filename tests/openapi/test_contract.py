"""The contract is valid, and agrees with the code on routes, codes and values."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from payintent.cases.model import CaseKind
from payintent.cases.store import STATUSES
from payintent.core.countries import COUNTRIES
from payintent.core.errors import ErrorCode
from payintent.core.money import CURRENCIES
from payintent.fraud.model import RiskLevel
from payintent.gateways.port import DisputedFunds, DisputeState, FailureReason
from payintent.http.docs.documents import read_openapi_document
from payintent.http.errors import STATUS_BY_CODE
from payintent.http.pagination import _PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX
from payintent.merchants.model import FeeMode, TaxManager
from payintent.payments.model import PaymentStatus
from payintent.payments.schemas import EXPIRES_IN_DEFAULT_S, EXPIRES_IN_MAX_S
from payintent.refunds.model import RefundFailureReason, RefundStatus
from payintent.runtime.version import API_VERSION, VERSION
from payintent.test_mode.model import DECLINED_CARDS, TEST_CARDS
from payintent.webhooks.model import EventType, list_event_payload_fields
from tests.docs.parse_pages import ROOT
from tests.openapi.strict_contract import closed, operations
from tests.support.routes import ROUTES

_RAISED = re.compile(r"\bErrorCode\.([A-Z_]+)\b(?!: \d)")  # except in the table of statuses
#: Statuses in addition to the table in http/errors.py.
_MORE = {ErrorCode.BAD_REQUEST: {405, 408, 413, 415, 431}, ErrorCode.INVALID_AMOUNT: {400}}
_SCHEMAS = read_openapi_document()["components"]["schemas"]


def test_the_contract_is_valid_openapi_3_1() -> None:
    assert read_openapi_document()["openapi"].startswith("3.1.")
    assert list(OpenAPIV31SpecValidator(read_openapi_document()).iter_errors()) == []


def test_the_contract_has_the_served_version() -> None:
    assert read_openapi_document()["info"]["version"] == API_VERSION == "0.9.9"
    versions = _SCHEMAS["Health"]["properties"]
    assert versions["version"]["const"] == VERSION
    assert versions["api_version"]["const"] == API_VERSION


def test_the_contract_documents_exactly_the_served_routes() -> None:
    routes = {
        (method, re.sub(r"\{(\w+):\w+\}", r"{\1}", route.path))
        for route in ROUTES
        for method in route.methods - {"HEAD"}
    }
    assert {(method, path) for method, path, _ in operations()} == routes


def test_every_operation_has_a_unique_name_and_a_group() -> None:
    groups = {tag["name"] for tag in read_openapi_document()["tags"]}
    operation_ids = [definition["operationId"] for _, _, definition in operations()]
    assert len(set(operation_ids)) == len(operation_ids)
    assert all(set(definition["tags"]) <= groups for _, _, definition in operations())


def test_exactly_the_merchant_routes_require_a_key() -> None:
    paths = {path for _, path, definition in operations() if definition["security"]}
    assert paths == {
        "/v1/payments",
        "/v1/payments/{payment_id}",
        "/v1/payments/{payment_id}/cancel",
        "/v1/payments/{payment_id}/refunds",
        "/v1/refunds",
        "/v1/refunds/{refund_id}",
        "/v1/payment-links",
        "/v1/payment-links/{link_id}",
        "/v1/payment-links/{link_id}/deactivate",
        "/v1/events",
        "/v1/events/{event_id}/replay",
        "/v1/cases",
        "/v1/disputes",
        "/v1/balance",
        "/v1/statements",
        "/v1/statements/{statement_id}",
        "/v1/catalog",
        "/v1/test/clock",
        "/v1/test/clock/advance",
        "/v1/test/payments/{payment_id}/pay",
        "/v1/test/payments/{payment_id}/decline",
        "/v1/test/payments/{payment_id}/dispute",
        "/v1/test/payments/{payment_id}/transfer",
    }
    assert all(
        ({"401", "429"} <= definition["responses"].keys()) == bool(definition["security"])
        for _, path, definition in operations()
        if not path.startswith("/v1/callbacks/")
    )


def test_the_contract_and_the_service_have_the_same_error_codes_and_statuses() -> None:
    table = {item["code"]: set(item["status"]) for item in read_openapi_document()["x-error-codes"]}
    assert table == {code: {STATUS_BY_CODE[code]} | _MORE.get(code, set()) for code in ErrorCode}
    assert list(table) == _SCHEMAS["ApiError"]["properties"]["code"]["enum"] == list(ErrorCode)
    assert len(table) == 28


def test_every_error_code_has_a_unique_condition() -> None:
    conditions = [item["condition"] for item in read_openapi_document()["x-error-codes"]]
    assert len(set(conditions)) == 28
    assert all(condition.endswith(".") and "\n" not in condition for condition in conditions)


def test_the_source_raises_every_documented_error_code_except_the_alias() -> None:
    sources = [item.read_text() for item in ROOT.glob("payintent/**/*.py")]
    raised = {code for text in sources for code in _RAISED.findall(text)}
    usage_by_code = {
        item["code"]: item["sent"] for item in read_openapi_document()["x-error-codes"]
    }
    assert {code for code, usage in usage_by_code.items() if usage == "now"} <= raised
    assert {code for code, usage in usage_by_code.items() if usage == "never"} == {"SERVER_ERROR"}
    assert "SERVER_ERROR" not in raised
    assert set(usage_by_code.values()) == {"now", "never"}


def test_every_documented_error_has_codes_that_match_its_status() -> None:
    table = {item["code"]: item["status"] for item in read_openapi_document()["x-error-codes"]}
    documented_codes = set()
    for method, path, definition in operations():
        for status, answer in definition["responses"].items():
            codes = _codes(answer)
            documented_codes |= codes
            assert all(int(status) in table[code] for code in codes), (method, path, status)
    never = {
        item["code"] for item in read_openapi_document()["x-error-codes"] if item["sent"] != "now"
    }
    assert documented_codes == set(table) - never - {"INVALID_TRANSITION"}


def _codes(answer: Any) -> set[str]:
    if "$ref" in answer:
        answer = read_openapi_document()["components"]["responses"][
            answer["$ref"].rpartition("/")[2]
        ]
    return set(answer.get("x-codes", []))


@pytest.mark.parametrize(
    ("schema", "values"),
    [
        ("Country", COUNTRIES),
        ("CurrencyCode", CURRENCIES),
        ("PaymentStatus", PaymentStatus),
        ("FailureReason", FailureReason),
        ("FeeMode", FeeMode),
        ("TaxManager", TaxManager),
        ("RefundStatus", RefundStatus),
        ("RefundFailureReason", RefundFailureReason),
        ("CaseKind", CaseKind),
        ("CaseStatus", STATUSES),
        ("DisputeState", DisputeState),
        ("DisputedFunds", DisputedFunds),
    ],
)
def test_enumerated_values_match_the_code(schema: str, values: Any) -> None:
    assert _SCHEMAS[schema]["enum"] == [str(item) for item in values]


def test_documented_limits_match_the_code() -> None:
    expires_in = _SCHEMAS["CreatePayment"]["properties"]["expires_in"]
    assert expires_in["maximum"] == EXPIRES_IN_MAX_S
    assert f"The default is {EXPIRES_IN_DEFAULT_S}." in expires_in["description"]
    for path, shape in (
        ("/v1/payments", "PaymentList"),
        ("/v1/payments/{payment_id}/refunds", "RefundList"),
        ("/v1/cases", "CaseList"),
        ("/v1/statements", "StatementList"),
    ):
        parameters = read_openapi_document()["paths"][path]["get"]["parameters"]
        [limit] = [item["schema"] for item in parameters if item["name"] == "limit"]
        assert limit["maximum"] == _SCHEMAS[shape]["properties"]["data"]["maxItems"]
        assert limit["maximum"] == PAGE_SIZE_MAX
        [described] = [item["description"] for item in parameters if item["name"] == "limit"]
        assert f" The default is {_PAGE_SIZE_DEFAULT}." in described
    levels = _SCHEMAS["FraudDecision"]["properties"]["risk_level"]["enum"]
    assert levels == list(RiskLevel)


def test_the_documented_test_cards_match_the_code() -> None:
    cards = _SCHEMAS["PayTestPayment"]["properties"]["card"]["enum"]
    assert cards == list(TEST_CARDS)
    codes = _SCHEMAS["DeclineTestPayment"]["properties"]["code"]["enum"]
    assert sorted(codes) == sorted(DECLINED_CARDS)


def test_every_example_matches_its_schema() -> None:
    document = Resource(contents=closed(), specification=DRAFT202012)
    registry = Registry().with_resource("urn:contract", document)
    examples = list(_examples(document.contents, ""))
    for location, example in examples:
        schema = {"$ref": f"urn:contract#{location}/schema"}
        errors = Draft202012Validator(schema, registry=registry).iter_errors(example)
        assert [error.message for error in errors] == [], location
    assert len(examples) > 15


def _target(reference: dict[str, str]) -> Any:
    return _SCHEMAS[reference["$ref"].rpartition("/")[2]]


def _examples(node: Any, location: str) -> Iterator[tuple[str, Any]]:
    """Iterate over examples that have a schema, with their JSON pointers."""
    if not isinstance(node, dict):
        return
    if {"schema", "example"} <= node.keys():
        yield location, node["example"]
    for name, member in node.items():
        yield from _examples(member, f"{location}/{name.replace('~', '~0').replace('/', '~1')}")


def test_the_documented_webhooks_match_the_event_types_and_field_order() -> None:
    webhooks = read_openapi_document()["webhooks"]
    assert list(webhooks) == list(EventType)
    for kind in EventType:
        body = webhooks[kind]["post"]["requestBody"]["content"]["application/json"]["schema"]
        event = _SCHEMAS[body["$ref"].rpartition("/")[2]]
        assert event["properties"]["type"]["const"] == kind
        payment = _target(_target(event["properties"]["data"])["properties"]["payment"])
        assert (
            payment["required"]
            == list(payment["properties"])
            == list(list_event_payload_fields(kind))
        )
