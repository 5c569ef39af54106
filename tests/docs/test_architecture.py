"""The architecture pages match the tree, the layers and the database."""

import asyncio
import re
import tomllib

import asyncpg

from payintent.payments.model import PaymentStatus
from tests.docs.reading import ROOT, blocks, page, rows, section, spans

_ARCHITECTURE = page("docs/contribute/architecture.md")
_INVARIANTS = page("docs/contribute/invariants.md")
_PACKAGE = ROOT / "payintent"
_MODULE = re.compile(r"\w+/\w+\.py")
_NO_CONSTRAINTS = {"version", "installation", "ring_key"}  # a column and tables
_NAMES = """
SELECT conname FROM pg_constraint
UNION SELECT tgname FROM pg_trigger
UNION SELECT relname FROM pg_class WHERE relkind = 'i'
"""


def test_every_constraint_that_the_page_names_stands_in_the_database(database_url: str) -> None:
    named = {
        span
        for line in _INVARIANTS.splitlines()
        if line.startswith("| ")
        for span in spans(line.rstrip("| ").rpartition("|")[2])
    }
    assert len(named) > 20
    assert named - asyncio.run(_names(database_url)) == _NO_CONSTRAINTS


async def _names(url: str) -> set[str]:
    connection = await asyncpg.connect(url)
    rows = await connection.fetch(_NAMES)
    await connection.close()
    return {row[0] for row in rows}


def test_the_layers_on_the_page_are_those_that_are_checked() -> None:
    contracts = tomllib.loads(page("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    [layers] = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    [line] = [block for block in blocks(_ARCHITECTURE, "text") if block.startswith("core <-")]
    shown = [_members(layer) for layer in line.split("<-")]
    assert shown == [_members(layer) for layer in reversed(layers)]


def test_the_map_on_the_page_is_the_tree() -> None:
    shown = _places(section(_ARCHITECTURE, "### Service packages"))
    modules = {item.stem for item in _PACKAGE.glob("*.py")} - {"__init__", "__main__"}
    assert shown == _folders() | {f"payintent/{module}.py" for module in modules}


def test_the_map_on_the_page_shows_every_folder_of_the_repository() -> None:
    shown = _places(section(_ARCHITECTURE, "### Repository folders"))
    top = {f"{item.name}/" for item in ROOT.iterdir() if item.is_dir() and item.name[0] not in "._"}
    assert top - {"var/", "dist/", "build/"} == shown


def test_the_modules_in_the_picture_of_a_payments_life_exist() -> None:
    [picture] = blocks(_ARCHITECTURE, "mermaid")
    modules = set(_MODULE.findall(picture))
    assert len(modules) > 20
    assert [module for module in sorted(modules) if not (_PACKAGE / module).is_file()] == []


def test_the_picture_shows_every_status_and_every_node_is_connected() -> None:
    [picture] = blocks(_ARCHITECTURE, "mermaid")
    statuses = [word for text in re.findall(r'\(\["(.*?)"\]\)', picture) for word in text.split()]
    assert set(statuses) - {"or"} == set(PaymentStatus)
    nodes = re.findall(r"^    (\w+)[(\[]", picture, re.MULTILINE)
    arrows = [line for line in picture.splitlines() if "-->" in line]
    named = {word for line in arrows for word in re.findall(r"\w+", re.sub(r'".*?"', "", line))}
    assert named == set(nodes)


def _folders() -> set[str]:
    return {f"payintent/{item.parent.name}/" for item in _PACKAGE.glob("*/__init__.py")}


def _places(map_: str) -> set[str]:
    """Return the first column of a map's table."""
    return {span for cells in rows(map_) for span in spans(cells[0])}


def _members(layer: str) -> set[str]:
    return {item.strip() for item in layer.replace("|", ",").split(",")}
