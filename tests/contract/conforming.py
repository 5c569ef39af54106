"""The contract as the tests hold the service to it: stricter than for callers, nothing unsaid."""

import copy
import re
from collections.abc import Iterator
from typing import Any

import requests
import schemathesis
from schemathesis import Case, GenerationMode
from schemathesis.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from schemathesis.schemas import APIOperation

from payintent.api.contract import contract
from tests.support.world import Answer

CONFORMANCE = [
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
METHODS = ("get", "post", "put", "patch", "delete")


def closed() -> dict[str, Any]:
    """The contract with every object that an answer may hold closed to members it does not name.

    Requests stay open: what is unknown in them is ignored.
    """
    document = copy.deepcopy(contract())
    schemas = document["components"]["schemas"]
    del schemas["Email"]["format"]  # tells people; its pattern is the rule, and a little wider
    for name, schema in schemas.items():
        if name in bodies():
            _write_out_null(schema["properties"], schemas)
        else:
            _close(schema)
    for item in document["paths"].values():
        for method in METHODS:
            _close(item.get(method, {}).get("responses", {}))
    return document


def bodies() -> set[str]:
    """The names of the schemas of what callers send."""
    operations = [item[method] for item in contract()["paths"].values() for method in item
                  if method in METHODS]  # fmt: skip
    schemas = [
        content["schema"]
        for one in operations
        for content in one.get("requestBody", {}).get("content", {}).values()
    ]
    return {one["$ref"].rpartition("/")[2] for one in schemas if "$ref" in one}


def _write_out_null(properties: dict[str, Any], schemas: dict[str, Any]) -> None:
    """Write `X or null` as one type: what is made from a choice breaks no rule of its parts."""
    for name, schema in properties.items():
        if {"type": "null"} in schema.get("oneOf", []):
            value = copy.deepcopy(schemas[schema["oneOf"][0]["$ref"].rpartition("/")[2]])
            value["type"] = [value["type"], "null"]
            if "enum" in value:
                value["enum"].append(None)
            properties[name] = value


def _close(node: Any) -> None:
    if isinstance(node, dict):
        if node.get("type") == "object" and "properties" in node:
            node.setdefault("additionalProperties", False)
        for value in node.values():
            _close(value)
    elif isinstance(node, list):
        for value in node:
            _close(value)


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every operation of the contract: method, path and what is said of it."""
    for path, item in contract()["paths"].items():
        for method in METHODS:
            if method in item:
                yield method.upper(), path, item[method]


_CONFIG = {
    # Keys are the tests' own; what happens without one is in tests/api/test_auth.py.
    "generation": {"with-security-parameters": False},
    "checks": {
        # 501 is what a route without anything behind it promises.
        "not_a_server_error": {"expected-statuses": ["2xx", "3xx", "4xx", "501"]},
        "negative_data_rejection": {"expected-statuses": ["4xx"]},
        # What fits the contract may be refused for its meaning, never for its shape (400); 401 is
        # for callbacks, which nobody has signed.
        "positive_data_acceptance": {
            "expected-statuses": ["2xx", "3xx", "401", "404", "409", "410", "422", "501"]
        },
    },
}
SCHEMA = schemathesis.openapi.from_dict(closed(), config=schemathesis.Config.from_dict(_CONFIG))


def operation(method: str, path: str) -> APIOperation:
    return SCHEMA[path][method]


def cases_of_every_rule(method: str, path: str) -> Iterator[Case]:
    """Requests that each touch one rule: at its edge, just beyond it, of another type."""
    said = operation(method, path)
    yield from SCHEMA.iter_coverage_cases(
        said,
        generation_modes=list(GenerationMode),
        generation_config=SCHEMA.config.generation_for(operation=said),
    )


def conforms(method: str, path: str, answer: Answer) -> Answer:
    """Hold an answer of a route to the contract, and give it; `path` as the contract writes it."""
    headers: dict[str, list[str]] = {}
    for name, value in answer.headers.items():
        headers.setdefault(name.lower(), []).append(value)
    response = schemathesis.Response(
        status_code=answer.status,
        headers=headers,
        content=answer.body,
        request=requests.Request(method, "http://pay.test/").prepare(),
        elapsed=0,
        verify=False,
    )
    named = dict.fromkeys(re.findall(r"{(\w+)}", path), "x")
    case = operation(method, path).Case(path_parameters=named)
    case.validate_response(response, checks=CONFORMANCE)
    return answer
