"""Check that docstrings, comments, test names, docs and pages are in plain technical English.

`python -m tools.prose` compares the rates of marker words with limits, separately for the code, the
tests and the docs. `python -m tools.prose PATH... --worst 20` measures the paths and lists the
files with the most markers. The exit status is 1 if a limit is exceeded. Text that exceeds a limit
is hard to read, but text within the limits can be hard to read too.
"""

import argparse
import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: The parts that `make check` measures separately.
PARTS = {
    "code": ("payintent", "payintent_sandbox", "tools"),
    "tests": ("tests", "bench", "drills", "examples"),
    "docs": ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs", "sdks", "plugins"),
}
_SKIPPED = frozenset({"__pycache__", "node_modules", ".venv", "var", "vendor", "migrations"})
_SUFFIXES = frozenset({".py", ".md", ".html"})
_DIRECTIVE = re.compile(r"#\s*(noqa|pyright:|type:|!)")
_MARKDOWN_CODE = re.compile(r"```.*?```|`[^`]*`|\]\([^)]*\)", re.DOTALL)
_HTML_MARKUP = re.compile(r"<(script|style)\b.*?</\1>|{[{%#].*?[}%#]}|<[^>]*>", re.DOTALL)
#: A bare participle must not be the name of a variable; data is named with nouns.
_PARTICIPLE = re.compile(
    "asked|chosen|claimed|counted|done|drawn|found|given|heard|held|joined|kept|known|listed|made|"
    "meant|named|noted|opened|owed|paid_out|read_back|said|seen|sent|served|shown|sold|taken|told|"
    "wanted|written"
)
PARTICIPLES_MAX = 100
_PER_WORDS = 1_000


@dataclass(frozen=True, slots=True)
class Marker:
    """A group of words, and their maximum (or minimum) number per 1,000 words."""

    name: str
    pattern: re.Pattern[str]
    limit: float
    is_minimum: bool = False

    def exceeds(self, rate: float) -> bool:
        return rate < self.limit if self.is_minimum else rate > self.limit


def _marker(name: str, words: str, limit: float, *, is_minimum: bool = False) -> Marker:
    return Marker(name, re.compile(rf"\b({words})\b", re.IGNORECASE), limit, is_minimum)


MARKERS = (
    _marker("where", "where", 2.0),
    _marker("what, who", "what|whatever|who|whoever|whom|whose", 2.0),
    _marker("one, other", "ones?|another|others?", 6.5),
    _marker("if, when", "if|when", 5.0, is_minimum=True),
)


@dataclass(slots=True)
class Measurement:
    """The number of words, markers and participle bindings in a text. Measurements can be added."""

    words: int = 0
    markers: Counter[str] = field(default_factory=Counter[str])
    participles: int = 0

    def add(self, measurement: "Measurement") -> None:
        self.words += measurement.words
        self.markers.update(measurement.markers)
        self.participles += measurement.participles

    def rate(self, marker: Marker) -> float:
        """Return the marker's occurrences per 1,000 words."""
        return _PER_WORDS * self.markers[marker.name] / max(self.words, 1)

    def failures(self) -> list[str]:
        failures = [
            f"{marker.name}: {self.rate(marker):.1f} per 1,000 words, "
            f"{'minimum' if marker.is_minimum else 'maximum'} {marker.limit}"
            for marker in MARKERS
            if self.words and marker.exceeds(self.rate(marker))
        ]
        if self.participles > PARTICIPLES_MAX:
            failures.append(f"participles: {self.participles} bindings, maximum {PARTICIPLES_MAX}")
        return failures

    def badness(self) -> float:
        """Return the total rate of all markers that have a maximum."""
        return sum(self.rate(marker) for marker in MARKERS if not marker.is_minimum)


def measure(path: Path) -> Measurement:
    """Measure a Python, Markdown or HTML file."""
    text = path.read_text()
    participles = 0
    if path.suffix == ".py":
        tree = ast.parse(text)
        participles = sum(1 for name in _bindings(tree) if _PARTICIPLE.fullmatch(name))
        text = " ".join([*_docstrings(tree), *_comments(text), *_test_names(tree)])
    else:
        text = (_MARKDOWN_CODE if path.suffix == ".md" else _HTML_MARKUP).sub(" ", text)
    markers = Counter({marker.name: len(marker.pattern.findall(text)) for marker in MARKERS})
    return Measurement(len(text.split()), markers, participles)


def _docstrings(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def _comments(text: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not _DIRECTIVE.match(token.string):
            yield token.string


def _test_names(tree: ast.Module) -> Iterator[str]:
    """Yield the names of tests as sentences."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name[:5] == "test_":
            yield node.name[5:].replace("_", " ")


def _bindings(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def list_files(paths: Iterable[Path]) -> Iterator[Path]:
    """List files with prose in folders, without generated and third-party files."""
    for path in paths:
        for file in [path] if path.is_file() else sorted(path.rglob("*")):
            if file.suffix in _SUFFIXES and not _SKIPPED & set(file.parts):
                yield file


def check(name: str, paths: Iterable[Path], worst: int = 0) -> bool:
    """Print the measurement of these paths, and return whether they are within all limits."""
    total = Measurement()
    files: list[tuple[float, Path]] = []
    for path in list_files(paths):
        measurement = measure(path)
        total.add(measurement)
        files.append((measurement.badness(), path))
    rates = ", ".join(f"{marker.name} {total.rate(marker):.1f}" for marker in MARKERS)
    print(f"{name}: {total.words} words; {rates}; participles {total.participles}")
    failures = total.failures()
    for failure in failures:
        print(f"  {failure}")
    files.sort(key=lambda rated: -rated[0])
    for badness, path in files[:worst]:
        print(f"  {badness:6.1f}  {path}")
    return not failures


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure how plain the English in files is.")
    parser.add_argument("paths", nargs="*", type=Path, help="files and folders; default: all")
    parser.add_argument("--worst", type=int, default=0, help="number of worst files to list")
    arguments = parser.parse_args()
    parts = {name: [ROOT / path for path in paths] for name, paths in PARTS.items()}
    if arguments.paths:
        parts = {"paths": arguments.paths}
    results = [check(name, paths, arguments.worst) for name, paths in parts.items()]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
