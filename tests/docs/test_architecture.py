"""The architecture pages match the tree, the layers and the database."""

import asyncio
import re
import tomllib

import asyncpg

from payintent.payments.model import PaymentStatus
from tests.docs.parse_pages import ROOT, blocks, page, rows, section, spans

_ARCHITECTURE = page("docs/contribute/architecture.md")
_INVARIANTS = page("docs/contribute/invariants.md")
_PACKAGE = ROOT / "payintent"
_MODULE = re.compile(r"\w+/\w+\.py")
_NOT_CONSTRAINTS = {"version", "installation", "ring_key"}  # columns and tables
_NAMES_QUERY = """
SELECT conname FROM pg_constraint
UNION SELECT tgname FROM pg_trigger
UNION SELECT relname FROM pg_class WHERE relkind = 'i'
"""


def test_every_constraint_on_the_page_exists_in_the_database(database_url: str) -> None:
    names = {
        span
        for line in _INVARIANTS.splitlines()
        if line.startswith("| ")
        for span in spans(line.rstrip("| ").rpartition("|")[2])
    }
    assert len(names) > 20
    assert names - asyncio.run(_fetch_names(database_url)) == _NOT_CONSTRAINTS


async def _fetch_names(url: str) -> set[str]:
    connection = await asyncpg.connect(url)
    rows = await connection.fetch(_NAMES_QUERY)
    await connection.close()
    return {row[0] for row in rows}


def test_the_layers_on_the_page_match_the_checked_layers() -> None:
    contracts = tomllib.loads(page("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    [layers] = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    [line] = [block for block in blocks(_ARCHITECTURE, "text") if block.startswith("core <-")]
    layers_on_page = [_split_layer(layer) for layer in line.split("<-")]
    assert layers_on_page == [_split_layer(layer) for layer in reversed(layers)]


def test_the_page_lists_every_service_package() -> None:
    paths = _read_paths(section(_ARCHITECTURE, "### Service packages"))
    modules = {item.stem for item in _PACKAGE.glob("*.py")} - {"__init__", "__main__"}
    assert paths == _folders() | {f"payintent/{module}.py" for module in modules}


def test_the_page_lists_every_repository_folder() -> None:
    paths = _read_paths(section(_ARCHITECTURE, "### Repository folders"))
    top = {f"{item.name}/" for item in ROOT.iterdir() if item.is_dir() and item.name[0] not in "._"}
    assert top - {"var/", "dist/", "build/"} == paths


def test_the_modules_in_the_payment_lifecycle_diagram_exist() -> None:
    [diagram] = blocks(_ARCHITECTURE, "mermaid")
    modules = set(_MODULE.findall(diagram))
    assert len(modules) > 20
    assert [module for module in sorted(modules) if not (_PACKAGE / module).is_file()] == []


def test_the_diagram_shows_every_status_and_every_node_is_connected() -> None:
    [diagram] = blocks(_ARCHITECTURE, "mermaid")
    statuses = [word for text in re.findall(r'\(\["(.*?)"\]\)', diagram) for word in text.split()]
    assert set(statuses) - {"or"} == set(PaymentStatus)
    nodes = re.findall(r"^    (\w+)[(\[]", diagram, re.MULTILINE)
    arrows = [line for line in diagram.splitlines() if "-->" in line]
    connected = {word for line in arrows for word in re.findall(r"\w+", re.sub(r'".*?"', "", line))}
    assert connected == set(nodes)


def _folders() -> set[str]:
    return {f"payintent/{item.parent.name}/" for item in _PACKAGE.glob("*/__init__.py")}


def _read_paths(map_: str) -> set[str]:
    """Return the code spans in the first column of a table."""
    return {span for cells in rows(map_) for span in spans(cells[0])}


def _split_layer(layer: str) -> set[str]:
    return {item.strip() for item in layer.replace("|", ",").split(",")}
