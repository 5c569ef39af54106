"""The API reference built from the API document: operations, events, schemas and errors."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

Json = Mapping[str, Any]

_METHODS = ("get", "post", "put", "patch", "delete")
_PATTERN_CHARS_MAX = 40
_NOTHING: Json = {}
_EVERYWHERE = "X-Request-Id"  # documented once, at the top


@dataclass(frozen=True, slots=True)
class TypePart:
    text: str
    shape: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldDoc:
    name: str
    type: tuple[TypePart, ...]
    required: bool
    rules: tuple[str, ...]
    values: tuple[str, ...]
    about: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerDoc:
    status: str
    about: str
    codes: tuple[str, ...]
    shape: tuple[TypePart, ...]
    headers: tuple[str, ...]
    example: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationDoc:
    id: str
    method: str
    path: str
    summary: str
    about: str
    needs_key: bool
    parameters: tuple[FieldDoc, ...]
    body: tuple[FieldDoc, ...]
    example: str
    answers: tuple[AnswerDoc, ...]


@dataclass(frozen=True, slots=True)
class OperationGroup:
    name: str
    about: str
    operations: tuple[OperationDoc, ...]

    @property
    def id(self) -> str:
        return self.name.lower().replace(" ", "-")


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaDoc:
    name: str
    about: str
    value: FieldDoc | None
    fields: tuple[FieldDoc, ...]


class ApiReference:
    """Reads the API document's parts in the order in which they are shown."""

    def __init__(self, contract: Json) -> None:
        self._contract = contract
        self._members = _used_once(contract)

    def groups(self) -> list[OperationGroup]:
        found = list(self._operations(self._contract["paths"]))
        used = {tag for tags, _ in found for tag in tags}
        return [
            OperationGroup(
                tag["name"],
                tag["description"],
                tuple(operation for tags, operation in found if tag["name"] in tags),
            )
            for tag in self._contract["tags"]
            if tag["name"] in used
        ]

    def events(self) -> list[OperationDoc]:
        return [operation for _, operation in self._operations(self._contract["webhooks"])]

    def shapes(self) -> list[SchemaDoc]:
        """Return the named schemas that are not shown where they are used, objects first."""
        named = self._contract["components"]["schemas"]
        shown_in_place = (self._bodies() - set(_references(named))) | self._members
        shapes = [self._shape(name, named[name]) for name in named if name not in shown_in_place]
        return sorted(shapes, key=lambda shape: shape.value is not None)

    def _bodies(self) -> set[str]:
        items = [*self._contract["paths"].values(), *self._contract["webhooks"].values()]
        said = [item[method] for item in items for method in item if method in _METHODS]
        schemas = [
            _content(operation.get("requestBody", {})).get("schema", {}) for operation in said
        ]
        return {schema["$ref"].rpartition("/")[2] for schema in schemas if "$ref" in schema}

    def _operations(self, paths: Json) -> Iterator[tuple[list[str], OperationDoc]]:
        for path, item in paths.items():
            shared = item.get("parameters", [])
            for method in (key for key in item if key in _METHODS):
                yield item[method]["tags"], self._operation(path, method, item[method], shared)

    def _operation(self, path: str, method: str, said: Json, shared: list[Json]) -> OperationDoc:
        parameters = [
            self._target(parameter) for parameter in (*shared, *said.get("parameters", []))
        ]
        content = _content(said.get("requestBody", {}))
        return OperationDoc(
            id=said["operationId"],
            method=method.upper(),
            path=path,
            summary=said["summary"],
            about=said.get("description", ""),
            needs_key=bool(said.get("security")),
            parameters=tuple(
                self._parameter(parameter)
                for parameter in parameters
                if parameter["name"] != _EVERYWHERE
            ),
            body=tuple(self._fields(self._target(content.get("schema", {})))),
            example=_example(content),
            answers=tuple(
                self._answer(status, self._target(response))
                for status, response in said["responses"].items()
            ),
        )

    def _answer(self, status: str, said: Json) -> AnswerDoc:
        content = _content(said)
        schema = content.get("schema", {})
        return AnswerDoc(
            status=status,
            about=said["description"],
            codes=tuple(said.get("x-codes", [])),
            shape=_type(schema) if schema and "x-codes" not in said else (),
            headers=tuple(name for name in said.get("headers", {}) if name != _EVERYWHERE),
            example=_example(content),
        )

    def _parameter(self, said: Json) -> FieldDoc:
        field = self._field(said["name"], said["schema"], required=said.get("required", False))
        return FieldDoc(
            name=field.name,
            type=(TypePart(f"{said['in']}: "), *field.type),
            required=field.required,
            rules=field.rules,
            values=field.values,
            about=said.get("description") or field.about,
        )

    def _shape(self, name: str, schema: Json) -> SchemaDoc:
        plain = schema.get("type") != "object"
        return SchemaDoc(
            name=name,
            about=schema.get("description", ""),
            value=self._field("", schema, required=True) if plain else None,
            fields=() if plain else tuple(self._fields(schema)),
        )

    def _fields(self, schema: Json, prefix: str = "") -> Iterator[FieldDoc]:
        """Yield an object's members; those of a schema that is used only here have dotted names."""
        # With fraud screening, fields are required only in the branch that is not denied: `if`,
        # `else`.
        needed = schema.get("required", schema.get("else", _NOTHING).get("required", []))
        for name, member in schema.get("properties", {}).items():
            of_items = "items" in member
            inner = member.get("items", member)
            shown_here = _name(inner) in self._members
            field = self._field(prefix + name, member, required=name in needed)
            if shown_here:
                about = member.get("description") or self._target(inner).get("description", "")
                kind = _type({"type": "array" if of_items else "object"})
                field = replace(field, type=kind, about=about)
            yield field
            if shown_here:
                yield from self._fields(
                    self._target(inner), f"{prefix}{name}{'[]' if of_items else ''}."
                )

    def _field(self, name: str, schema: Json, *, required: bool) -> FieldDoc:
        target = self._target(schema)
        linked = target is not schema
        said = schema.get("description")
        inherited = "" if "properties" in target else target.get("description", "")
        return FieldDoc(
            name=name,
            type=_type(schema),
            required=required,
            rules=() if linked else tuple(_rules(schema)),
            values=() if linked else tuple(str(value_) for value_ in schema.get("enum", [])),
            about=said if said is not None else inherited,
        )

    def _target(self, said: Json) -> Json:
        if "$ref" not in said:
            return said
        found: Any = self._contract
        for step in said["$ref"].removeprefix("#/").split("/"):
            found = found[step]
        return found


def _content(said: Json) -> Json:
    contents: Json = said.get("content", {})
    return next(iter(contents.values()), _NOTHING)


def _name(schema: Json) -> str:
    return schema.get("$ref", "").rpartition("/")[2]


def _used_once(contract: Json) -> set[str]:
    """Return the objects that are a member of only one other object: they are shown there."""
    named = contract["components"]["schemas"]
    members = Counter(
        _name(member.get("items", member))
        for schema in named.values()
        for member in schema.get("properties", {}).values()
    )
    used = Counter(_references(contract))
    return {
        name
        for name, times in members.items()
        if times == used[name] == 1 and named[name].get("type") == "object"
    }


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        members = cast("dict[str, Any]", node)
        if isinstance(members.get("$ref"), str):
            yield _name(members)
        for member in members.values():
            yield from _references(member)
    elif isinstance(node, list):
        for member in cast("list[Any]", node):
            yield from _references(member)


def _type(schema: Json) -> tuple[TypePart, ...]:
    """Return a schema's type, with links to the schemas that it refers to."""
    if "$ref" in schema:
        return (TypePart(schema["$ref"].rpartition("/")[2], shape=True),)
    if "oneOf" in schema:
        names = [_type(variant) for variant in schema["oneOf"]]
        return tuple(
            part
            for number, name in enumerate(names)
            for part in ((TypePart(" or "),) if number else ()) + name
        )
    if schema.get("type") == "array":
        return (TypePart("list of "), *_type(schema.get("items", {"type": "objects"})))
    named = schema.get("type", "any")
    return (TypePart(named if isinstance(named, str) else " or ".join(named)),)


def _rules(schema: Json) -> Iterator[str]:
    if schema.get("format") not in {None, "int64"}:
        yield schema["format"]
    if "const" in schema:
        yield f"always {schema['const']}"
    yield from _span(schema, "minimum", "maximum", "")
    yield from _span(schema, "minLength", "maxLength", " characters")
    pattern = schema.get("pattern", "")
    if pattern and "format" not in schema and len(pattern) <= _PATTERN_CHARS_MAX:
        yield f"matches {pattern}"


def _span(schema: Json, low: str, high: str, unit: str) -> Iterator[str]:
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
