"""Every command in docs/contribute/development.md exists, with its options and variables."""

import re
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.docs.parse_pages import ROOT, page, rows, section

_PAGE = page("docs/contribute/development.md")
_COMMANDS = {line[0].strip("`"): line[1] for line in rows(_PAGE) if " " in line[0]}
_MODULE = re.compile(r"python -m ([\w.]+)")
_PATH = re.compile(r"(?<= )tests/\S+")
_VARIABLE = re.compile(r"\b([A-Z][A-Z_]+)=")
_OPTION = re.compile(r"(?<![\w-])--([a-z-]+)")
_SOURCES = "\n".join(
    path.read_text()
    for folder in ("bench", "tools", "tests", "payintent_sandbox")
    for path in (ROOT / folder).rglob("*.py")
)


def _source(module: str) -> str:
    spec = find_spec(module)
    assert spec is not None, module
    assert spec.origin is not None, module
    if spec.submodule_search_locations:
        return "\n".join(path.read_text() for path in Path(spec.origin).parent.glob("*.py"))
    return Path(spec.origin).read_text()


def test_the_page_lists_commands() -> None:
    assert len(_COMMANDS) > 20


@pytest.mark.parametrize("command", _COMMANDS)
def test_the_modules_files_options_and_variables_of_a_command_exist(command: str) -> None:
    explanation = _COMMANDS[command]
    assert [path for path in _PATH.findall(command) if not (ROOT / path).is_file()] == []
    if command.startswith("make "):
        assert re.search(rf"^{command.split()[1]}:", page("Makefile"), re.MULTILINE)
        return
    modules = _MODULE.findall(command)
    sources = {module: _source(module) for module in modules}
    assert [name for name, source in sources.items() if "__main__" not in source] == []
    variables = set(_VARIABLE.findall(f"{command} {explanation}")) - {"PYTEST_ARGS"}
    assert [name for name in variables if f'"{name}"' not in _SOURCES] == []
    if modules:
        options = _OPTION.findall(command.split(" && ", maxsplit=1)[0] + " " + explanation)
        assert [
            option for option in options if f'"--{option}"' not in "".join(sources.values())
        ] == []


def test_every_drill_is_on_the_page() -> None:
    drills = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__")
        for path in [*ROOT.glob("drills/*.py"), *ROOT.glob("drills/*/__main__.py")]
        if "__main__" in path.read_text()
    }
    assert drills - set(_MODULE.findall(_PAGE)) == {"drills.cells"}  # `make drill-cells`


def test_every_marker_that_selects_tests_is_explained() -> None:
    declared = tomllib.loads(page("pyproject.toml"))["tool"]["pytest"]["ini_options"]["markers"]
    explained = [line[0].strip("`") for line in rows(section(_PAGE, "## Tests"))]
    assert {item.partition(":")[0] for item in declared} - {"e2e"} == set(explained) & {
        "slow", "full", "long"
    }  # fmt: skip
    selecting = page("Makefile").split("\ntest:")[1].split("\ncheck:")[0]
    assert set(re.findall(r"not (\w+)", selecting)) == {"slow", "full", "long"}
