"""The contract as the tests apply it: stricter than for callers, without undeclared data."""

import re
from collections.abc import Iterator
from typing import Any

import schemathesis
from schemathesis import Case, GenerationMode
from schemathesis.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from schemathesis.schemas import APIOperation

from payintent.http.docs.documents import read_openapi_document
from tests.support.conformance import METHODS, check, closed
from tests.support.world import Answer

CONFORMANCE = [
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
#: The next actions that no gateway gives: the service itself says them.
OWN_ACTIONS = {"wait", "none"}


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every operation in the contract: method, path and definition."""
    for path, item in read_openapi_document()["paths"].items():
        for method in METHODS:
            if method in item:
                yield method.upper(), path, item[method]


_CONFIG = {
    # Keys are the tests' own; tests/merchants/test_authentication.py has the cases without a key.
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
    """Requests that each test one rule: at its limit, just beyond it, and of another type."""
    said = operation(method, path)
    yield from SCHEMA.iter_coverage_cases(
        said,
        generation_modes=list(GenerationMode),
        generation_config=SCHEMA.config.generation_for(operation=said),
    )


def conforms(method: str, path: str, answer: Answer) -> Answer:
    """Check a route's response against the contract, and return it. `path` is the contract's."""
    check(method, re.sub(r"{\w+}", "x", path), answer.status, answer.headers, answer.body)
    return answer
