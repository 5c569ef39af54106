"""The contract's structure: generated clients have a unique name for every type."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from openapi_spec_validator import OpenAPIV31SpecValidator

from payintent.core.errors import RefusedError
from payintent.http.bodies import read_idempotency_key
from payintent.http.docs.documents import read_openapi_document
from tests.conformance.adapters import HARNESSES
from tests.conformance.traits import TRAITS
from tests.openapi.strict_contract import METHODS, OWN_ACTIONS, operations

_SCHEMAS = read_openapi_document()["components"]["schemas"]
_RESPONSES = read_openapi_document()["components"]["responses"]
_ROOT = Path(__file__).resolve().parents[2]
_KEY = "7f4df3a5-0c0b-4c4e-9a43-5a2f6f0b1c8e"
_NULL = {"type": "null"}
_PROBES = {"/healthz", "/readyz"}
_GENERATED = re.compile(r"Inline|\d{3}|Request$")


def _nodes(node: Any, location: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Iterate over every object in the contract, except examples."""
    if isinstance(node, dict):
        yield location, node
        for name, member in node.items():
            if name not in {"example", "examples"}:
                yield from _nodes(member, f"{location}/{str(name).replace('/', '~1')}")
    elif isinstance(node, list):
        for number, member in enumerate(node):
            yield from _nodes(member, f"{location}/{number}")


def _resolve_response(response: dict[str, Any]) -> dict[str, Any]:
    return _RESPONSES[response["$ref"].rpartition("/")[2]] if "$ref" in response else response


def _json_schema(answer: dict[str, Any]) -> Any:
    return answer.get("content", {}).get("application/json", {}).get("schema")


def test_every_error_has_the_same_schema_and_lists_its_codes() -> None:
    responses = [(location, response) for method, path, definition in operations()
               for status, response in definition["responses"].items() if status >= "400"
               for location in [f"{method} {path} {status}"]]  # fmt: skip
    for location, response in responses:
        resolved = _resolve_response(response)
        if _json_schema(resolved) is not None:
            assert _json_schema(resolved) == {"$ref": "#/components/schemas/ApiError"}, location
            assert resolved["x-codes"], location
    assert len(responses) > 100


def test_a_created_payment_and_a_denial_have_separate_schemas() -> None:
    document = yaml.safe_load((_ROOT / "docs/openapi.yaml").read_text())
    answers = document["paths"]["/v1/payments"]["post"]["responses"]
    assert _json_schema(answers["201"]) == {"$ref": "#/components/schemas/CreatedPayment"}
    assert _json_schema(answers["200"]) == {"$ref": "#/components/schemas/Denial"}
    created = _SCHEMAS["CreatedPayment"]
    assert created["properties"].keys() - created["required"] == {
        *("checkout_url", "return_url", "cancel_url"),
    }
    assert "fds" not in created["properties"]
    assert _SCHEMAS["Denial"]["required"] == ["fds"]


def test_the_document_for_generators_excludes_pages_and_files() -> None:
    document = yaml.safe_load((_ROOT / "docs/openapi.yaml").read_text())
    assert all(path.startswith("/v1/") or path in _PROBES for path in document["paths"])
    kinds = {
        kind
        for item in document["paths"].values()
        for method in set(METHODS) & item.keys()
        for answer in item[method]["responses"].values()
        for kind in _resolve_response(answer).get("content", ())
    }
    # */* is the response format of a gateway
    assert kinds == {"application/json", "text/event-stream", "*/*"}
    assert list(OpenAPIV31SpecValidator(document).iter_errors()) == []


def test_all_successful_responses_of_an_operation_have_the_same_schema() -> None:
    for method, path, definition in operations():
        if definition["operationId"] == "createPayment":
            continue  # the status distinguishes its two schemas
        response_schemas = [
            _json_schema(_resolve_response(response))
            for status, response in definition["responses"].items()
            if status < "300"
        ]
        schemas = [item for item in response_schemas if item is not None]
        assert all(schema == schemas[0] for schema in schemas), (method, path)


def test_every_object_schema_is_named() -> None:
    inline = [location for location, node in _nodes(read_openapi_document())
              if "properties" in node and node.get("type") == "object"
              and not re.fullmatch(r"/components/schemas/\w+", location)]  # fmt: skip
    assert inline == []


def test_a_choice_and_its_alternatives_are_named_schemas() -> None:
    for location, node in _nodes(read_openapi_document()):
        assert not {"allOf", "anyOf"} & node.keys(), location
        if "oneOf" not in node:
            continue
        members = [item for item in node["oneOf"] if item != _NULL]
        assert all(item.keys() == {"$ref"} for item in members), location
        assert len(members) == 1 or re.fullmatch(r"/components/schemas/\w+", location), location


def test_the_type_discriminates_next_actions() -> None:
    action = _SCHEMAS["NextAction"]
    mapping = action["discriminator"]["mapping"]
    assert action["discriminator"]["propertyName"] == "type"
    assert [{"$ref": target} for target in mapping.values()] == action["oneOf"]
    for kind, target in mapping.items():
        member = _SCHEMAS[target.rpartition("/")[2]]
        assert member["properties"]["type"] == {"type": "string", "const": kind}
        assert member["required"] == ["type", kind]


def test_schema_names_do_not_collide_with_reserved_or_generated_names() -> None:
    assert {"Error", "Currency", "Status", "Exception", "Object", "Record"}.isdisjoint(_SCHEMAS)
    assert [schema for schema in _SCHEMAS if _GENERATED.search(schema)] == []


def test_schemas_define_no_default_values() -> None:
    assert [location for location, node in _nodes(read_openapi_document()) if "default" in node
            and not location.endswith("/responses")] == []  # fmt: skip


def test_schemas_are_not_named_after_their_properties() -> None:
    # methods of generated classes would collide with the class name
    for name, schema in _SCHEMAS.items():
        assert name.lower() not in schema.get("properties", {}), name


def test_required_names_are_properties_of_their_schema() -> None:
    for name, schema in _SCHEMAS.items():
        required = [*schema.get("required", []), *schema.get("else", {}).get("required", [])]
        assert set(required) <= schema.get("properties", {}).keys(), name


def test_metadata_can_contain_any_values() -> None:
    assert _SCHEMAS["Metadata"]["additionalProperties"] is True
    metadata = _SCHEMAS["CreatePayment"]["properties"]["metadata"]
    assert metadata["oneOf"] == [{"$ref": "#/components/schemas/Metadata"}, _NULL]


def test_every_operation_and_event_declares_its_security() -> None:
    events = [item["post"] for item in read_openapi_document()["webhooks"].values()]
    assert all(event["security"] == [] for event in events)
    items = read_openapi_document()["paths"].values()
    assert all(
        "security" in item[method] for item in items for method in set(METHODS) & item.keys()
    )


@pytest.mark.parametrize(
    "key", [_KEY, f'"{_KEY}"', _KEY.upper(), "", "1", _KEY.replace("-", ""), f"{_KEY}0"]
)
def test_the_idempotency_key_pattern_matches_the_keys_the_service_accepts(key: str) -> None:
    schema = _SCHEMAS["IdempotencyKey"]
    assert "format" not in schema
    try:
        is_accepted = read_idempotency_key({"idempotency-key": key}) is not None
    except RefusedError:
        is_accepted = False
    assert bool(re.search(schema["pattern"], key)) is is_accepted


def test_every_documented_next_action_comes_from_an_adapter_or_the_service() -> None:
    """The adapter kit checks the adapters' actions; `test_answers` checks the service's actions."""
    adapter_actions = {TRAITS[provider].action for provider in HARNESSES}
    mapping = _SCHEMAS["NextAction"]["discriminator"]["mapping"]
    assert adapter_actions | OWN_ACTIONS == set(mapping)


def test_the_gateway_port_page_documents_the_next_actions_of_the_contract() -> None:
    by_type = _SCHEMAS["NextAction"]["discriminator"]["mapping"]
    members = {
        type_: _resolve_schema(_resolve_schema(by_type[type_])["properties"][type_]["$ref"])[
            "properties"
        ].keys()
        for type_ in by_type.keys() - OWN_ACTIONS
    }
    text = (_ROOT / "docs" / "contribute" / "gateway-port.md").read_text()
    table = text.partition("| `T` | Members |")[2].partition("\n\n")[0]
    rows = [re.findall(r"`(\w+)`", row) for row in table.splitlines()[2:]]
    assert {name: set(documented) - {"GET", "POST"} for name, *documented in rows} == members


def _resolve_schema(reference: str) -> dict[str, Any]:
    schema: dict[str, Any] = _SCHEMAS[reference.rpartition("/")[2]]
    return schema
