"""Convert the OpenAPI document to operations, events and schemas for the reference's templates."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

Json = Mapping[str, Any]

_METHODS = ("get", "post", "put", "patch", "delete")
_PATTERN_CHARS_MAX = 40
_EMPTY: Json = {}
_COMMON_HEADER = "X-Request-Id"  # documented only once, at the top of the page


@dataclass(frozen=True, slots=True)
class TypePart:
    text: str
    is_schema: bool = False  # the text is the name of a schema


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldDoc:
    name: str
    type: tuple[TypePart, ...]
    is_required: bool
    constraints: tuple[str, ...]
    values: tuple[str, ...]
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseDoc:
    status: str
    description: str
    codes: tuple[str, ...]
    body_type: tuple[TypePart, ...]
    headers: tuple[str, ...]
    example: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationDoc:
    id: str
    method: str
    path: str
    summary: str
    description: str
    needs_key: bool
    parameters: tuple[FieldDoc, ...]
    body: tuple[FieldDoc, ...]
    example: str
    responses: tuple[ResponseDoc, ...]


@dataclass(frozen=True, slots=True)
class OperationGroup:
    name: str
    description: str
    operations: tuple[OperationDoc, ...]

    @property
    def id(self) -> str:
        return self.name.lower().replace(" ", "-")


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaDoc:
    name: str
    description: str
    value: FieldDoc | None  # None for an object, which has `fields`
    fields: tuple[FieldDoc, ...]


class ApiReference:
    def __init__(self, contract: Json) -> None:
        self._contract = contract
        self._inline_schemas = _find_inline_schemas(contract)

    def list_groups(self) -> list[OperationGroup]:
        operations = list(self._list_operations(self._contract["paths"]))
        used_tags = {tag for tags, _ in operations for tag in tags}
        return [
            OperationGroup(
                tag["name"],
                tag["description"],
                tuple(operation for tags, operation in operations if tag["name"] in tags),
            )
            for tag in self._contract["tags"]
            if tag["name"] in used_tags
        ]

    def list_events(self) -> list[OperationDoc]:
        return [operation for _, operation in self._list_operations(self._contract["webhooks"])]

    def list_schemas(self) -> list[SchemaDoc]:
        """List the schemas that are not shown inline, objects first."""
        schemas = self._contract["components"]["schemas"]
        inline_names = (
            self._find_body_schemas() - set(_referenced_names(schemas))
        ) | self._inline_schemas
        documents = [
            self._build_schema(name, schemas[name]) for name in schemas if name not in inline_names
        ]
        return sorted(documents, key=lambda document: document.value is not None)

    def _find_body_schemas(self) -> set[str]:
        items = [*self._contract["paths"].values(), *self._contract["webhooks"].values()]
        operations = [item[method] for item in items for method in item if method in _METHODS]
        schemas = [
            _content(operation.get("requestBody", {})).get("schema", {}) for operation in operations
        ]
        return {schema["$ref"].rpartition("/")[2] for schema in schemas if "$ref" in schema}

    def _list_operations(self, paths: Json) -> Iterator[tuple[list[str], OperationDoc]]:
        for path, item in paths.items():
            shared_parameters = item.get("parameters", [])
            for method in (key for key in item if key in _METHODS):
                yield (
                    item[method]["tags"],
                    self._build_operation(path, method, item[method], shared_parameters),
                )

    def _build_operation(
        self, path: str, method: str, spec: Json, shared_parameters: list[Json]
    ) -> OperationDoc:
        parameters = [
            self._resolve(parameter)
            for parameter in (*shared_parameters, *spec.get("parameters", []))
        ]
        content = _content(spec.get("requestBody", {}))
        return OperationDoc(
            id=spec["operationId"],
            method=method.upper(),
            path=path,
            summary=spec["summary"],
            description=spec.get("description", ""),
            needs_key=bool(spec.get("security")),
            parameters=tuple(
                self._build_parameter(parameter)
                for parameter in parameters
                if parameter["name"] != _COMMON_HEADER
            ),
            body=tuple(self._list_fields(self._resolve(content.get("schema", {})))),
            example=_example(content),
            responses=tuple(
                self._build_response(status, self._resolve(response))
                for status, response in spec["responses"].items()
            ),
        )

    def _build_response(self, status: str, spec: Json) -> ResponseDoc:
        content = _content(spec)
        schema = content.get("schema", {})
        return ResponseDoc(
            status=status,
            description=spec["description"],
            codes=tuple(spec.get("x-codes", [])),
            body_type=_type_parts(schema) if schema and "x-codes" not in spec else (),
            headers=tuple(name for name in spec.get("headers", {}) if name != _COMMON_HEADER),
            example=_example(content),
        )

    def _build_parameter(self, spec: Json) -> FieldDoc:
        field = self._build_field(
            spec["name"], spec["schema"], is_required=spec.get("required", False)
        )
        return replace(
            field,
            type=(TypePart(f"{spec['in']}: "), *field.type),
            description=spec.get("description") or field.description,
        )

    def _build_schema(self, name: str, schema: Json) -> SchemaDoc:
        is_scalar = schema.get("type") != "object"
        return SchemaDoc(
            name=name,
            description=schema.get("description", ""),
            value=self._build_field("", schema, is_required=True) if is_scalar else None,
            fields=() if is_scalar else tuple(self._list_fields(schema)),
        )

    def _list_fields(self, schema: Json, prefix: str = "") -> Iterator[FieldDoc]:
        """Yield an object's fields. Fields of inline schemas have dotted names."""
        # In a schema that also covers fraud denials, `else` lists the required fields of all other
        # responses.
        required = schema.get("required", schema.get("else", _EMPTY).get("required", []))
        for name, member in schema.get("properties", {}).items():
            is_list = "items" in member
            inner = member.get("items", member)
            is_inline = _schema_name(inner) in self._inline_schemas
            field = self._build_field(prefix + name, member, is_required=name in required)
            if is_inline:
                description = member.get("description") or self._resolve(inner).get(
                    "description", ""
                )
                field_type = _type_parts({"type": "array" if is_list else "object"})
                field = replace(field, type=field_type, description=description)
            yield field
            if is_inline:
                yield from self._list_fields(
                    self._resolve(inner), f"{prefix}{name}{'[]' if is_list else ''}."
                )

    def _build_field(self, name: str, schema: Json, *, is_required: bool) -> FieldDoc:
        target = self._resolve(schema)
        is_reference = target is not schema
        description = schema.get("description")
        target_description = "" if "properties" in target else target.get("description", "")
        return FieldDoc(
            name=name,
            type=_type_parts(schema),
            is_required=is_required,
            constraints=() if is_reference else tuple(_list_constraints(schema)),
            values=() if is_reference else tuple(str(value) for value in schema.get("enum", [])),
            description=target_description if description is None else description,
        )

    def _resolve(self, node: Json) -> Json:
        """Resolve a `$ref`. Returns the node itself if it is not a reference."""
        if "$ref" not in node:
            return node
        target: Any = self._contract
        for key in node["$ref"].removeprefix("#/").split("/"):
            target = target[key]
        return target


def _content(body: Json) -> Json:
    contents: Json = body.get("content", {})
    return next(iter(contents.values()), _EMPTY)


def _schema_name(schema: Json) -> str:
    return schema.get("$ref", "").rpartition("/")[2]


def _find_inline_schemas(contract: Json) -> set[str]:
    """Find the object schemas that only one field uses. They are shown with that field."""
    schemas = contract["components"]["schemas"]
    members = Counter(
        _schema_name(member.get("items", member))
        for schema in schemas.values()
        for member in schema.get("properties", {}).values()
    )
    references = Counter(_referenced_names(contract))
    return {
        name
        for name, count in members.items()
        if count == references[name] == 1 and schemas[name].get("type") == "object"
    }


def _referenced_names(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        members = cast("dict[str, Any]", node)
        if isinstance(members.get("$ref"), str):
            yield _schema_name(members)
        for member in members.values():
            yield from _referenced_names(member)
    elif isinstance(node, list):
        for member in cast("list[Any]", node):
            yield from _referenced_names(member)


def _type_parts(schema: Json) -> tuple[TypePart, ...]:
    if "$ref" in schema:
        return (TypePart(schema["$ref"].rpartition("/")[2], is_schema=True),)
    if "oneOf" in schema:
        names = [_type_parts(variant) for variant in schema["oneOf"]]
        return tuple(
            part
            for number, name in enumerate(names)
            for part in ((TypePart(" or "),) if number else ()) + name
        )
    if schema.get("type") == "array":
        return (TypePart("list of "), *_type_parts(schema.get("items", {"type": "objects"})))
    types = schema.get("type", "any")
    return (TypePart(types if isinstance(types, str) else " or ".join(types)),)


def _list_constraints(schema: Json) -> Iterator[str]:
    if schema.get("format") not in {None, "int64"}:
        yield schema["format"]
    if "const" in schema:
        yield f"always {schema['const']}"
    yield from _describe_range(schema, "minimum", "maximum", "")
    yield from _describe_range(schema, "minLength", "maxLength", " characters")
    pattern = schema.get("pattern", "")
    if pattern and "format" not in schema and len(pattern) <= _PATTERN_CHARS_MAX:
        yield f"matches {pattern}"


def _describe_range(schema: Json, low: str, high: str, unit: str) -> Iterator[str]:
    if low in schema and high in schema:
        yield f"{schema[low]} to {schema[high]}{unit}"
    elif low in schema:
        yield f"at least {schema[low]}{unit}" if unit == "" else "not empty"
    elif high in schema:
        yield f"at most {schema[high]}{unit}"


def _example(content: Json) -> str:
    if "example" not in content:
        return ""
    return json.dumps(content["example"], indent=2, ensure_ascii=False)
