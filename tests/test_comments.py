"""Names in backticks in comments and docstrings exist in the code."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from payintent.runtime.settings import Settings

ROOT = Path(__file__).parent.parent
FILES = sorted(ROOT.glob("payintent*/**/*.py"))
#: Other files whose words may be named.
BESIDE = (
    "contracts/*.vy",
    "payintent/**/*.sql",
    "payintent/**/*.html",
    "payintent/**/*.js",
    "docs/openapi.yaml",
)
#: Third-party words: a locale tag, a program, and fields of gateways.
FOREIGN = {"zh_TW", "diff", "ExpireDate", "StoreExpireDate", "payment_method_types"}
_WORD = re.compile(r"\w+")
_NAME = re.compile(r"`([A-Za-z_]\w{2,})`")


@cache
def _tokens(path: Path) -> tuple[list[tokenize.TokenInfo], list[tokenize.TokenInfo]]:
    """Return a module's comments and docstrings, and its remaining text."""
    text = path.read_text()
    documented = {
        node.value.lineno
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    prose, code = [], []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        docstring = token.type == tokenize.STRING and token.start[0] in documented
        (prose if docstring or token.type == tokenize.COMMENT else code).append(token)
    return prose, code


def _words() -> Iterator[str]:
    for path in FILES:
        yield path.stem
        for token in _tokens(path)[1]:
            yield from _WORD.findall(token.string)
    for pattern in BESIDE:
        for path in ROOT.glob(pattern):
            yield from _WORD.findall(path.read_text())


def test_a_name_in_backticks_exists_in_the_code() -> None:
    settings = {f"PAYINTENT_{name.upper()}" for name in Settings.model_fields}
    words = set(_words()) | FOREIGN | settings
    names = [
        (f"{path.relative_to(ROOT)}:{token.start[0]}", name)
        for path in FILES
        for token in _tokens(path)[0]
        for name in _NAME.findall(token.string)
    ]
    assert names
    assert [(place, name) for place, name in names if name not in words] == []
