"""Rules that a formatter cannot check: sizes, the order of a package, names and migrations."""

import ast
import io
import re
import shutil
import subprocess
import tokenize
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.full

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "payintent"
SANDBOX = ROOT / "payintent_sandbox"
FILES = sorted([*PACKAGE.rglob("*.py"), *SANDBOX.rglob("*.py")])
FILE_LINES_MAX = 450
#: A reference table, whose descriptions are published by `python -m tools.settings_page`.
TABLE = PACKAGE / "runtime" / "settings.py"
FUNCTION_LINES_MAX = 50
FOLDER_ENTRIES_MAX = 25
#: Every test that may be skipped, by file, with the condition; the summary shows skipped tests.
SKIPS = {
    "tests/docs/test_commands.py": "curl is not installed",
    "tests/docs/test_examples.py": "curl is not installed",
    "tests/e2e/test_disk_full.py": "the user is not root or cannot mount file systems",
    "tests/gateways/test_stripe_mock.py": "Go or its module proxy is not available",
    "tests/sandbox/test_postgres.py": "the system is not Linux, or the user is not root",
    "tests/db/test_schema_file.py": "PostgreSQL is older than version 18",
    "tests/tools/test_plugins.py": "PHP is not installed",
}
SKIPPING = re.compile(
    r"\b(?:pytest\.skip|skipif|importorskip|mark\.skip|SkipTest|xfail|unittest\.skip)\b"
)

# A letter in brackets keeps the words out of this file.
UNFINISHED = re.compile(r"\b([T]ODO|[F]IXME)\b")
WORKSHOP = re.compile(r"/[w]ork/|\b[s]hared/|\b[p]ypi\.org|pythonhosted\.[o]rg")
TEXTS = {".py", ".sql", ".md", ".toml", ".yaml", ".yml", ".html", ".css", ".js", ".mjs", ".txt"}
LEFT_OUT = {".venv", "var", "node_modules"}


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def _nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(_tree(path)))


def _functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in _nodes(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _tracked() -> list[Path]:
    """List the files that git would publish or, without a repository, every text file."""
    paths: list[Path] = []
    if shutil.which("git"):
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        paths = [ROOT / line for line in result.stdout.splitlines()]
    if not paths:
        paths = [path for path in ROOT.rglob("*") if not LEFT_OUT & set(path.parts)]
    return sorted(path for path in paths if path.is_file() and path.suffix in TEXTS)


TRACKED = _tracked()


@pytest.mark.parametrize("path", FILES, ids=_name)
def test_every_module_has_a_docstring_and_a_limited_size(path: Path) -> None:
    text = path.read_text()
    docstring = ast.get_docstring(_tree(path))
    assert docstring, "a module must start with a sentence that describes it"
    assert docstring.splitlines()[0].rstrip().endswith((".", "?"))
    assert path == TABLE or len(text.splitlines()) <= FILE_LINES_MAX
    long = {
        function.name: lines
        for function in _functions(path)
        if (lines := (function.end_lineno or 0) - function.lineno + 1) > FUNCTION_LINES_MAX
    }
    assert long == {}


def test_the_package_is_not_empty() -> None:
    assert len(FILES) > 50
    assert len(TRACKED) > len(FILES)


def test_a_folder_has_a_limited_number_of_entries() -> None:
    """The package itself has an entry for each subpackage."""
    folders = {path.parent for path in FILES} - {PACKAGE}
    entries = {
        _name(folder): len([path for path in folder.iterdir() if path.name != "__pycache__"])
        for folder in folders
    }
    assert {name: count for name, count in entries.items() if count > FOLDER_ENTRIES_MAX} == {}


def _imported_modules(path: Path) -> Iterator[Path]:
    """Yield our modules that a module imports, even inside functions or only for type checking."""
    for node in _nodes(path):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            file = ROOT.joinpath(*name.split(".")).with_suffix(".py")
            if file.is_file():
                yield file


#: Modules that contain only values and pure rules, although their names do not show it.
PURE_MODULES = {
    "mail/message.py",
    "payment_sessions/settlement_rules.py",
}


@cache
def _pure_modules() -> set[Path]:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    [modules] = [
        contract["source_modules"]
        for contract in contracts["contracts"]
        if contract["name"].startswith("Business rules")
    ]
    files = [ROOT.joinpath(*name.split(".")).with_suffix(".py") for name in modules]
    return {PACKAGE / name for name in PURE_MODULES} | {file for file in files if file.is_file()}


def _level(path: Path) -> int:
    """Return the level of a module in its package, by its name."""
    if path.name in {"model.py", "port.py"} or path in _pure_modules():
        return 0
    if path.name.endswith("store.py"):
        return 1
    return 3 if path.name.endswith(("operations.py", "routes.py")) else 2


def test_modules_of_a_package_import_only_lower_layers() -> None:
    upwards = [
        f"{_name(path)} imports {imported.name}"
        for path in sorted(PACKAGE.glob("*/**/*.py"))
        for imported in set(_imported_modules(path))
        if imported.parent == path.parent and _level(imported) > _level(path)
    ]
    assert upwards == []


def test_only_the_application_imports_routes() -> None:
    importers = [
        f"{_name(path)} imports {_name(imported)}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path != PACKAGE / "app.py"
        for imported in set(_imported_modules(path))
        if imported.name.endswith("routes.py")
    ]
    assert importers == []


def _float_uses(path: Path) -> Iterator[str]:
    """Find floats that are not times in seconds, by their names."""
    for node in _nodes(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, float):
            yield f"{_name(path)}:{node.lineno} {node.value}"
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "float":
            yield f"{_name(path)}:{node.lineno} float()"
        elif isinstance(node, ast.arg | ast.AnnAssign | ast.FunctionDef):
            kind = node.returns if isinstance(node, ast.FunctionDef) else node.annotation
            name = ast.unparse(node.target) if isinstance(node, ast.AnnAssign) else None
            name = name or getattr(node, "arg", None) or getattr(node, "name", "")
            if kind is not None and "float" in ast.unparse(kind) and not name.endswith("_s"):
                yield f"{_name(path)}:{node.lineno} {name}"


def test_only_seconds_are_floats_in_the_rules() -> None:
    """Webhooks have no amounts, but the jitter of their retries is a fraction."""
    paths = (
        *sorted((PACKAGE / "core").glob("*.py")),
        *sorted(set(PACKAGE.glob("*/model.py")) - {PACKAGE / "webhooks" / "model.py"}),
        PACKAGE / "payments" / "serialization.py",
    )
    assert [use for path in paths for use in _float_uses(path)] == []


def test_no_amount_is_a_float_in_the_database() -> None:
    for path in sorted((PACKAGE / "db" / "migrations").glob("*.sql")):
        assert not re.search(r"\b(float\d?|real|double precision|money)\b", _statements(path))


def _statements(path: Path) -> str:
    return re.sub(r"--.*|'[^']*'", "", path.read_text())


@pytest.mark.parametrize("words", [UNFINISHED, WORKSHOP], ids=["unfinished", "workshop"])
def test_forbidden_words_are_not_used(words: re.Pattern[str]) -> None:
    matches = [
        f"{_name(path)}:{number}: {line.strip()[:80]}"
        for path in TRACKED
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if words.search(line)
    ]
    assert matches == []


def test_each_migration_has_a_unique_number() -> None:
    names = [path.name for path in sorted((PACKAGE / "db" / "migrations").iterdir())]
    assert names[0].startswith("0001_")
    assert [name for name in names if not re.fullmatch(r"[0-9]{4}_[a-z0-9_]+\.sql", name)] == []
    assert len({name[:4] for name in names}) == len(names)


def test_a_payment_status_is_written_in_a_single_place() -> None:
    """Every change uses `apply_transitions`, which is the only caller of `write_changes`."""
    call = re.compile(r"\.write_changes\(")
    writers = [_name(path) for path in FILES if call.search(path.read_text())]
    assert writers == ["payintent/payments/transitions.py"]
    update = re.compile(r"UPDATE payment\b.*\n.*\bstatus =")
    updates = [_name(path) for path in FILES if update.search(path.read_text())]
    assert updates == ["payintent/payments/store.py"]


def test_a_case_is_written_in_a_single_place() -> None:
    write = re.compile(r"(?:INSERT INTO|UPDATE) money_case\b")
    writers = [_name(path) for path in FILES if write.search(path.read_text())]
    assert writers == ["payintent/cases/store.py"]


def _definitions() -> Iterator[tuple[Path, ast.stmt]]:
    """Return the top-level definitions of the service's modules, except for private names."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in _tree(path).body:
            if not getattr(node, "name", "_").startswith("_"):
                yield path, node


def _defined_twice(definitions: Iterator[tuple[Path, ast.stmt]]) -> dict[str, list[str]]:
    places: dict[str, list[str]] = {}
    for path, node in definitions:
        places.setdefault(node.name, []).append(_name(path))  # type: ignore[attr-defined]
    return {name: where for name, where in places.items() if len(where) > 1}


def test_class_names_are_unique() -> None:
    definitions = ((path, node) for path, node in _definitions() if isinstance(node, ast.ClassDef))
    assert _defined_twice(definitions) == {}


def test_names_of_functions_imported_without_their_module_are_unique() -> None:
    """Functions of stores and commands are called with their module."""
    definitions = (
        (path, node)
        for path, node in _definitions()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and not path.name.endswith("store.py")
        and "cli" not in path.relative_to(PACKAGE).parts
    )
    assert _defined_twice(definitions) == {}


def test_only_the_names_of_exceptions_end_in_error() -> None:
    wrong = []
    for path, node in _definitions():
        if isinstance(node, ast.ClassDef):
            bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
            raised = any(base.endswith(("Error", "Exception")) for base in bases)
            if raised != node.name.endswith("Error"):
                wrong.append(f"{_name(path)}: {node.name}")
    assert wrong == []


def test_only_these_tests_may_be_skipped_and_the_summary_shows_the_reason() -> None:
    """Tests that need a chain or a browser fail if it is missing."""
    paths = sorted((ROOT / "tests").rglob("*.py"))
    skipping = {
        _name(path)
        for path in paths
        if path != Path(__file__) and SKIPPING.search(path.read_text())
    }
    assert skipping == SKIPS.keys()
    assert " -rs " in (ROOT / "pyproject.toml").read_text()


NO_NAMES = {"one", "known", "told", "asked", "here", "seen"}
RETIRED = re.compile(
    r"(?:janitor|desk|mint|poke|parcel|arrow|lookout)s?|(?:mint|pok|parcel)(?:ed|ing)|minter"
)
#: Also matches parts of words. A file without a match is not tokenized.
_RETIRED_ANYWHERE = re.compile(RETIRED.pattern, re.IGNORECASE)
#: A function of the token contract that the sandbox deploys.
OF_OTHERS = {("payintent_sandbox/chains/deploy.py", "mint")}


def _bindings(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Return every bound name with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno
        elif isinstance(node, ast.MatchAs | ast.MatchStar | ast.ExceptHandler) and node.name:
            yield node.name, node.lineno
        elif isinstance(node, ast.alias) and node.asname:
            yield node.asname, node.lineno


def test_names_are_descriptive() -> None:
    wrong = [
        f"{_name(path)}:{line} {name}"
        for path in FILES
        for name, line in _bindings(_tree(path))
        if name in NO_NAMES
    ]
    assert wrong == []


def _documented(path: Path) -> Iterator[tuple[ast.AST, str]]:
    """Return the docstrings of a module, with the described objects."""
    for node in _nodes(path):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text is not None:
                yield node, text


def _retired_words(path: Path) -> Iterator[str]:
    text = path.read_text()
    if not _RETIRED_ANYWHERE.search(text):
        return
    spoken = [(getattr(node, "lineno", 1), said) for node, said in _documented(path)]
    spoken += [
        (token.start[0], token.string)
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type in (tokenize.COMMENT, tokenize.NAME)
    ]
    for line, said in spoken:
        words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", said)
        for word in words:
            if RETIRED.fullmatch(word.lower()) and (_name(path), word) not in OF_OTHERS:
                yield f"{_name(path)}:{line} {word}"


def test_retired_words_do_not_occur_in_names_docstrings_or_comments() -> None:
    assert [word for path in FILES for word in _retired_words(path)] == []
