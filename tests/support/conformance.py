"""Check every response that a test receives against the API contract.

tests/conftest.py installs `watch` once. It checks every service response that an aiohttp client of
the tests reads, from this process or another, against `docs/openapi.yaml`.
"""

import copy
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import unquote

import aiohttp
import jsonschema_rs
from starlette.routing import Route

from payintent.http.docs.documents import read_openapi_document
from payintent.http.middleware import _CORS_PATHS, _STATIC_PATHS, _UNCACHED_PATHS

METHODS = ("get", "post", "put", "patch", "delete")
#: Headers that HTTP and the server add.
_FRAMING = {"content-length", "content-type", "date", "connection", "transfer-encoding"}
_CORS = {"access-control-allow-origin", "access-control-expose-headers"}
#: Security headers of pages and files.
_CAREFUL = {
    "content-security-policy", "cross-origin-opener-policy", "cross-origin-resource-policy",
    "permissions-policy", "referrer-policy", "x-content-type-options", "x-frame-options",
    "x-robots-tag",
}  # fmt: skip
_NEGOTIATED = {"vary", "content-encoding"}
_PAGES = ("/c/", "/sdk/", "/docs", "/packages/")
#: Responses that `info.description` declares for every route, with the codes of their bodies.
_ANY_ROUTE = {404: "NOT_FOUND", 405: "BAD_REQUEST", 408: "BAD_REQUEST", 431: "BAD_REQUEST"}
#: An event of a stream. OpenAPI 3.1 can describe a stream only as text.
_EVENT = {
    "type": "object",
    "required": ["event", "id", "data"],
    "properties": {
        "event": {"enum": ["status", "onchain"]},
        "id": {"type": "string", "pattern": "^[0-9]+$"},
        "data": {"type": "string"},
    },
    "additionalProperties": False,
}
_PORTAL = "/merchant"
_OPERATORS = ("/operator/", "/metrics")  # on a separate port, and not in the contract
_DIGITS_MAX = 18
_URN = "urn:contract"


class NonconformingError(AssertionError):
    """A response differs from the contract."""


def closed() -> dict[str, Any]:
    """Return the contract, with every response object closed to undeclared members.

    Request objects stay open, because the service ignores unknown fields.
    """
    document = copy.deepcopy(read_openapi_document())
    schemas = document["components"]["schemas"]
    del schemas["Email"]["format"]  # informative; the pattern is normative and slightly wider
    requested = bodies()
    for name, schema in schemas.items():
        if name in requested:
            _write_out_null(schema["properties"], schemas)
        else:
            _close(schema)
    for item in document["paths"].values():
        for method in set(METHODS) & item.keys():
            for answer in item[method]["responses"].values():
                if (stream := answer.get("content", {}).get("text/event-stream")) is not None:
                    stream["schema"] = _EVENT
    return document


def bodies() -> set[str]:
    """Return the names of the request body schemas."""
    paths = read_openapi_document()["paths"].values()
    operations = [item[method] for item in paths for method in item if method in METHODS]
    schemas = [
        content["schema"]
        for operation in operations
        for content in operation.get("requestBody", {}).get("content", {}).values()
    ]
    return {_name(schema) for schema in schemas if "$ref" in schema}


def _name(reference: Mapping[str, str]) -> str:
    return reference["$ref"].rpartition("/")[2]


def _write_out_null(properties: dict[str, Any], schemas: dict[str, Any]) -> None:
    """Replace `X or null` with a single type, because generated values may violate a choice."""
    for name, schema in properties.items():
        if {"type": "null"} in schema.get("oneOf", []):
            value = copy.deepcopy(schemas[_name(schema["oneOf"][0])])
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


@dataclass(frozen=True, slots=True)
class _Response:
    """The compiled schemas for a status of an operation."""

    content: Mapping[str, jsonschema_rs.Draft202012Validator]
    headers: Mapping[str, jsonschema_rs.Draft202012Validator]
    needed: frozenset[str]
    codes: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Judge:
    """The contract's routes and their responses, which are compiled on first use."""

    document: dict[str, Any]
    registry: jsonschema_rs.Registry
    routes: list[tuple[re.Pattern[str], str]]

    def path_of(self, path: str) -> str | None:
        """Return the contract's path for a URL path: the first match, as in app.py."""
        return next((route for pattern, route in self.routes if pattern.fullmatch(path)), None)


@cache
def _judge() -> _Judge:
    document = closed()
    paths = sorted(document["paths"], key=lambda path: "{mark}" in path)
    routes = [(re.compile(re.sub(r"{\w+}", "[^/]+", path)), path) for path in paths]
    return _Judge(document, jsonschema_rs.Registry([(_URN, document)]), routes)


@cache
def _response(method: str, path: str, status: int) -> _Response | None:
    judge = _judge()
    operation = judge.document["paths"][path].get(method)
    answer = operation and operation["responses"].get(str(status))
    if answer is None:
        return None
    if "$ref" in answer:
        answer = judge.document["components"]["responses"][_name(answer)]
    declared = {name.lower(): _header(one) for name, one in answer.get("headers", {}).items()}
    return _Response(
        {kind: _validator(one["schema"]) for kind, one in answer.get("content", {}).items()},
        {name: _validator(one["schema"]) for name, one in declared.items()},
        frozenset(name for name, one in declared.items() if one.get("required")),
        frozenset(answer.get("x-codes", [])),
    )


def _header(header: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" not in header:
        return header
    component: Mapping[str, Any] = _judge().document["components"]["headers"][_name(header)]
    return component


def _validator(schema: Mapping[str, Any]) -> jsonschema_rs.Draft202012Validator:
    if "$ref" in schema:
        schema = schema | {"$ref": f"{_URN}{schema['$ref']}"}
    return jsonschema_rs.Draft202012Validator(
        dict(schema), registry=_judge().registry, validate_formats=True
    )


def _is_operators(path: str) -> bool:
    """Return whether a path is on the operator port, including the console."""
    return path.startswith(_OPERATORS) or path.split("/")[1] in _console_parts()


@cache
def _console_parts() -> frozenset[str]:
    """Return the first parts of the console's paths."""
    from payintent.console.routes import CONSOLE_ROUTES

    routes = [route for route in CONSOLE_ROUTES if isinstance(route, Route)]
    return frozenset(route.path.split("/")[1] for route in routes)


def check(method: str, path: str, status: int, headers: Mapping[str, str], body: bytes) -> None:
    """Check a response against the contract. Raises `NonconformingError`."""
    if path.startswith(_PORTAL):  # pages for people, which the contract does not describe
        return
    route = _judge().path_of(path)
    if _is_operators(path) or (method == "OPTIONS" and status in {204, 405}):
        return
    lower = {name.lower(): headers[name] for name in headers}
    faults = list(_faults(method.lower(), path, route, status, lower, body))
    if faults:
        raise NonconformingError(f"{method} {path}: {status}: {'; '.join(faults)}")


def _faults(
    method: str,
    path: str,
    route: str | None,
    status: int,
    headers: Mapping[str, str],
    body: bytes,
) -> Iterator[str]:
    response = _response("get" if method == "head" else method, route, status) if route else None
    if response is None:
        yield from _of_any_route(status, body)
        response = _Response({}, {}, frozenset(), frozenset())
    elif method != "head":
        yield from _content_faults(response, headers.get("content-type", ""), body)
    yield from _header_faults(response, path, status, headers)


def _of_any_route(status: int, body: bytes) -> Iterator[str]:
    if status not in _ANY_ROUTE:
        yield "the status is not declared"
    elif body and json.loads(body)["code"] != _ANY_ROUTE[status]:
        yield f"the body is not the general body of status {status}: {body[:200]!r}"


def _content_faults(response: _Response, content_type: str, body: bytes) -> Iterator[str]:
    kind = content_type.partition(";")[0].strip()
    if not response.content:
        if body:
            yield "a body is not declared"
        return
    validator = response.content.get(kind, response.content.get("*/*"))
    if validator is None:
        yield f"{kind or 'no type'} is not declared"
    elif kind == "application/json":
        try:
            value = json.loads(body, parse_int=_integer)
        except ValueError:
            yield f"the body is not JSON: {body[:200]!r}"
            return
        yield from (_told(error) for error in validator.iter_errors(value))
        if response.codes and value.get("code") not in response.codes:
            yield f"the code {value.get('code')} is not declared"
    elif kind == "text/event-stream":
        for event in _events(body):
            yield from (_told(error) for error in validator.iter_errors(event))


def _integer(digits: str) -> int:
    """Read an integer. The value of an extremely long integer does not matter."""
    return int(digits[:_DIGITS_MAX])


def _told(error: Any) -> str:
    where = "/".join(str(step) for step in error.instance_path)
    return f"{where or 'the body'}: {error.message}"


def _events(body: bytes) -> Iterator[dict[str, str]]:
    """Read a stream's events, without comments and the retry interval."""
    for block in body.decode().split("\n\n"):
        lines = [line.partition(": ") for line in block.splitlines() if not line.startswith(":")]
        fields = {name: value for name, _, value in lines if name != "retry"}
        if fields:
            yield fields


def _header_faults(
    response: _Response, path: str, status: int, headers: Mapping[str, str]
) -> Iterator[str]:
    for name in (response.needed | {"x-request-id"}) - headers.keys():
        yield f"the header {name} is missing"
    for name, value in headers.items():
        if name in response.headers:
            if not response.headers[name].is_valid(value):
                yield f"the header {name} is not as declared: {value}"
        elif name not in _of_every_answer(path, status):
            yield f"the header {name} is not declared"
    private = path.startswith(_UNCACHED_PATHS) and not path.startswith(_STATIC_PATHS)
    if private and headers.get("cache-control") != "no-store":
        yield "it may be cached"


@cache
def _of_every_answer(path: str, status: int) -> frozenset[str]:
    names = {"x-request-id"} | _FRAMING
    if path.startswith(_CORS_PATHS):
        names |= _CORS
    if path.startswith(_UNCACHED_PATHS):
        names.add("cache-control")
    if path.startswith(_PAGES) or path == "/openapi.yaml":
        names |= _CAREFUL | _CORS | _NEGOTIATED
    if path.endswith("/events"):
        names.add("x-accel-buffering")
    return frozenset(names | ({"allow"} if status == 405 else set()))


def watch() -> None:
    """Check every service response that an aiohttp client reads, recognised by its id header."""
    read = aiohttp.ClientResponse.read

    async def read_and_check(self: aiohttp.ClientResponse) -> bytes:
        body = await read(self)
        stands_in = "aiohttp" in self.headers.get(
            "Server", ""
        )  # from a test server, not from the service
        if "X-Request-Id" in self.headers and not stands_in:
            path = unquote(self.url.raw_path)
            check(self.method, path, self.status, self.headers, body)
        return body

    aiohttp.ClientResponse.read = read_and_check
