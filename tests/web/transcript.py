"""Derive a screen reader's text for a page from the browser's accessibility tree."""

from collections.abc import Callable, Iterator
from typing import Any

from playwright.async_api import Page

_Node = dict[str, Any]
#: Roles with a spoken name, and the word that follows the name.
_SPOKEN_ROLES = {
    "button": "button",
    "link": "link",
    "textbox": "edit",
    "combobox": "combo box",
    "MenuListPopup": "",
    "image": "graphic",
    "Iframe": "frame",
}
_SUMMARY = "DisclosureTriangle"
_TEXT = "StaticText"
_INLINE = frozenset({"Abbr", "code", "strong", "time"})
_LABEL = "LabelText"
_LEGEND = "Legend"
_CONTROLS = frozenset({"radio", "textbox", "combobox"})


async def read_aloud(page: Page) -> list[str]:
    """Return a page's spoken text, with a line for each stop."""
    nodes = await _load_tree(page)
    root = next(iter(nodes.values()))
    return [f"Page: {_name(root)}", *_read_children(root, nodes)]


async def read_focus(page: Page) -> str:
    """Return the spoken text of the focused control."""
    nodes = await _load_tree(page)
    focused = [node for node in nodes.values() if _property(node, "focused") is True]
    lines = [line for item in focused[-1:] for line in _read_node(item, nodes)]
    return lines[0] if lines else ""


async def _load_tree(page: Page) -> dict[str, _Node]:
    tools = await page.context.new_cdp_session(page)
    await tools.send("Accessibility.enable")
    answer = await tools.send("Accessibility.getFullAXTree")
    await tools.detach()
    return {node["nodeId"]: node for node in answer["nodes"]}


def _read_children(node: _Node, nodes: dict[str, _Node]) -> Iterator[str]:
    """Read the children. Adjacent text nodes are joined into a line."""
    texts: list[str] = []
    for child in _children(node, nodes):
        if _is_inline(child, nodes):
            texts += [_name(child)] if _role(child) == _TEXT else _read_children(child, nodes)
            continue
        lines = list(_read_node(child, nodes))
        if lines and texts:
            yield _join(texts)
            texts = []
        yield from lines
    if texts:
        yield _join(texts)


def _is_inline(node: _Node, nodes: dict[str, _Node]) -> bool:
    if node["ignored"]:
        return False
    return _role(node) == _TEXT or _role(node) in _INLINE


def _read_node(node: _Node, nodes: dict[str, _Node]) -> Iterator[str]:
    role, name = _role(node), _name(node)
    if node["ignored"]:
        yield from _read_children(node, nodes)
    elif role == "heading":
        yield f"{name}, heading level {_property(node, 'level')}"
    elif role == "radio":
        state = "checked" if _property(node, "checked") == "true" else "not checked"
        yield f"{name}, radio button, {state}"
    elif role == _SUMMARY:
        state = "expanded" if _property(node, "expanded") else "collapsed"
        yield f"{name}, button, {state}"
    elif role in _SPOKEN_ROLES:
        yield _read_control(node)
    elif role in {_LABEL, _LEGEND}:  # the text is read as the name of the control or group
        yield from _only_controls(node, nodes)
    elif role in _READERS:
        yield from _READERS[role](node, nodes)
    else:
        yield from _read_children(node, nodes)


def _read_control(node: _Node) -> str:
    value = str(node.get("value", {}).get("value", ""))
    parts = [_name(node), _SPOKEN_ROLES[_role(node)], *([value] if value else [])]
    description = str(node.get("description", {}).get("value", ""))
    return ", ".join([*parts, description] if description else parts)


def _only_controls(node: _Node, nodes: dict[str, _Node]) -> Iterator[str]:
    for child in _children(node, nodes):
        if _role(child) in _CONTROLS:
            yield from _read_node(child, nodes)
        else:
            yield from _only_controls(child, nodes)


def _read_region(node: _Node, nodes: dict[str, _Node]) -> Iterator[str]:
    if _name(node):
        yield f"{_name(node)}, {_role(node)}"
    yield from _read_children(node, nodes)


def _read_live(node: _Node, nodes: dict[str, _Node]) -> Iterator[str]:
    """Read a live region. Screen readers also read it when it changes."""
    for line in _read_children(node, nodes):
        yield f"{_role(node)}: {line}"


_READERS: dict[str, Callable[[_Node, dict[str, _Node]], Iterator[str]]] = {
    "region": _read_region,
    "group": _read_region,
    "status": _read_live,
    "alert": _read_live,
}


def _join(texts: list[str]) -> str:
    return " ".join(" ".join(texts).split())


def _children(node: _Node, nodes: dict[str, _Node]) -> list[_Node]:
    return [nodes[key] for key in node.get("childIds", []) if key in nodes]


def _role(node: _Node) -> str:
    return str(node.get("role", {}).get("value", ""))


def _name(node: _Node) -> str:
    return _join([str(node.get("name", {}).get("value", ""))])


def _property(node: _Node, name: str) -> Any:
    values = [
        item["value"].get("value") for item in node.get("properties", []) if item["name"] == name
    ]
    return values[0] if values else None
