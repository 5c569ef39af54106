"""The contract as the tests enforce it: callers may receive undeclared data, tests may not."""

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
#: The next actions that are returned by the service itself, not by a gateway.
OWN_ACTIONS = {"wait", "none"}


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Iterate over all operations of the contract: method, path and definition."""
    for path, item in read_openapi_document()["paths"].items():
        for method in METHODS:
            if method in item:
                yield method.upper(), path, item[method]


_CONFIG = {
    # The tests add keys; tests/merchants/test_authentication.py tests requests without a key.
    "generation": {"with-security-parameters": False},
    "checks": {
        # 501 is the documented response of a route that is not implemented.
        "not_a_server_error": {"expected-statuses": ["2xx", "3xx", "4xx", "501"]},
        "negative_data_rejection": {"expected-statuses": ["4xx"]},
        # A valid request can be rejected because of its values, but not because of its structure
        # (400). Callbacks return 401, because they are not signed.
        "positive_data_acceptance": {
            "expected-statuses": ["2xx", "3xx", "401", "404", "409", "410", "422", "501"]
        },
    },
}
SCHEMA = schemathesis.openapi.from_dict(closed(), config=schemathesis.Config.from_dict(_CONFIG))


def operation(method: str, path: str) -> APIOperation:
    return SCHEMA[path][method]


def cases_of_every_rule(method: str, path: str) -> Iterator[Case]:
    """Generate requests that each test one rule: at its limit, beyond it, or with a wrong type."""
    api_operation = operation(method, path)
    yield from SCHEMA.iter_coverage_cases(
        api_operation,
        generation_modes=list(GenerationMode),
        generation_config=SCHEMA.config.generation_for(operation=api_operation),
    )


def conforms(method: str, path: str, answer: Answer) -> Answer:
    """Check a response against the contract, and return it. `path` is the path in the contract."""
    check(method, re.sub(r"{\w+}", "x", path), answer.status, answer.headers, answer.body)
    return answer
