"""`make check` reports features that a supported browser lacks, unless they have a fallback."""

import json
import re
from pathlib import Path

import pytest

from tools.web.check import HERE, ROOT, SERVED, lint

pytestmark = pytest.mark.full

SCRIPTS = {
    "AbortSignal.timeout": "fetch('/', { signal: AbortSignal.timeout(1) });",
    "randomUUID": "export const nonce = crypto.randomUUID();",
    "randomUUID of another name": "const { randomUUID } = crypto; randomUUID();",
    "randomUUID in brackets": "crypto['randomUUID']();",
    "structuredClone": "structuredClone({});",
    "structuredClone of window": "window.structuredClone({});",
    "at": "export const last = (list) => list.at(-1);",
    "Object.hasOwn": "Object.hasOwn({}, 'a');",
    "Object.groupBy": "Object.groupBy([], String);",
    "Promise.withResolvers": "Promise.withResolvers();",
    "Array.fromAsync": "Array.fromAsync([]);",
    "findLast": "[1].findLast(Boolean);",
    "toSorted": "[1].toSorted();",
    "isWellFormed": "''.isWellFormed();",
    "union": "new Set().union(new Set());",
    "Intl.Segmenter": "new Intl.Segmenter('th');",
    "requestSubmit": "document.forms[0].requestSubmit();",
    "throwIfAborted": "new AbortController().signal.throwIfAborted();",
    "a signal's reason": "const { signal } = new AbortController(); signal.reason;",
    "a listener's signal": "addEventListener('a', () => {}, { signal: null });",
    "showPopover": "document.body.showPopover();",
    "parseCreationOptionsFromJSON": "PublicKeyCredential.parseCreationOptionsFromJSON({});",
    "scheduler": "scheduler.postTask(() => {});",
    "CompressionStream": "new CompressionStream('gzip');",
    "lookbehind": "/(?<=a)b/.test('');",
    "negative lookbehind": "/(?<!a)b/.test('');",
    "the v flag": "/[a--b]/v.test('');",
    "top-level await": "await 1;",
    "a static block": "class A { static { A.b = 1; } } new A();",
    "a private name with in": "class A { #b; has(c) { return #b in c; } } new A();",
    "an error's cause": "throw new Error('a', { cause: 1 });",
}
STYLES = {
    ":has": "p:has(a) { color: red; }",
    ":is": ":is(p, a) { color: red; }",
    ":where": ":where(p, a) { color: red; }",
    "aspect-ratio": "p { aspect-ratio: 1; }",
    "dvh": "p { height: 100dvh; }",
    "a container query": "@container (width > 1px) { p { color: red; } }",
    "color-mix": "p { color: color-mix(in srgb, red, blue); }",
    "color-mix in a custom property": "p { --a: color-mix(in srgb, red, blue); }",
    "light-dark": "p { color: light-dark(red, blue); }",
    "light-dark in a custom property": "p { --a: light-dark(red, blue); }",
    "@layer": "@layer base { p { color: red; } }",
    "@property": "@property --a { syntax: '*'; inherits: false; }",
    "@scope": "@scope (p) { a { color: red; } }",
    "nesting": "p { & a { color: red; } }",
    "nesting without &": "p { a { color: red; } }",
    "a range of widths": "@media (width >= 400px) { p { color: red; } }",
    "overflow: clip": "p { overflow: clip; }",
    "overflow-wrap: anywhere": "p { overflow-wrap: anywhere; }",
    "subgrid": "p { grid-template-rows: subgrid; }",
    "field-sizing": "p { field-sizing: content; }",
    "a view transition": "p { view-transition-name: a; }",
    "an individual transform": "p { translate: 1px; }",
}
FALLBACKS = {
    "asked.js": "document.forms[0].requestSubmit?.();",
    "typeof.js": "if (typeof structuredClone === 'function') document.title = '';",
    "old.js": "Promise.any([]); ''.replaceAll('a', 'b'); let a = null; a ??= 1; a?.b;",
    "private.js": "class A { #b = 1; #c() { return this.#b; } d() { this.#c(); } } new A();",
    "field.js": "export const when = (sent) => sent.at;",
    "supports.css": "@supports selector(:has(a)) { p:has(a) { color: red; } }",
    "old.css": "p { display: grid; gap: 1px; inset: 0; width: min(1px, 2px); margin-inline: 1px; }",
}


def _complaints(folder: Path, files: dict[str, str]) -> set[str]:
    """Lint files; return the names of those with findings."""
    for name, text in files.items():
        (folder / name).write_text(text)
    findings = lint([Path(name) for name in files], folder)
    assert findings.stderr == ""
    return {Path(item).name for item in re.findall(r"^/.*$", findings.stdout, re.MULTILINE)}


@pytest.mark.parametrize(("kind", "plants"), [("js", SCRIPTS), ("css", STYLES)])
def test_each_feature_that_a_supported_browser_lacks_is_reported(
    kind: str, plants: dict[str, str], tmp_path: Path
) -> None:
    files = {f"{number}.{kind}": text for number, text in enumerate(plants.values())}
    complaints = _complaints(tmp_path, files)
    assert [name for name, file in zip(plants, files, strict=True) if file not in complaints] == []


def test_fallbacks_and_universally_supported_features_pass(tmp_path: Path) -> None:
    assert _complaints(tmp_path, FALLBACKS) == set()


def test_the_served_files_pass() -> None:
    findings = lint(ROOT / "payintent" / name for name in SERVED)
    assert (findings.returncode, findings.stdout + findings.stderr) == (0, "")


def test_every_served_script_and_style_is_checked() -> None:
    paths = {
        path
        for kind in ("js", "css")
        for path in (ROOT / "payintent").rglob(f"*.{kind}")
        if ".min." not in path.name
    }
    folders = [ROOT / "payintent" / name for name in SERVED]
    assert {
        path for path in paths if not any(folder in path.parents for folder in folders)
    } == set()


def test_the_documented_browsers_are_checked() -> None:
    queries = json.loads((HERE / "package.json").read_text())["browserslist"]
    page = (ROOT / "docs" / "integrate" / "checkout.md").read_text()
    versions = dict(query.split(" >= ") for query in queries)
    for name, title in {
        "chrome": "Chrome",
        "edge": "Edge",
        "firefox": "Firefox",
        "ios_saf": "Safari on iOS",
        "safari": "Safari",
        "samsung": "Samsung Internet",
    }.items():
        assert re.search(rf"^\| {title}[^|]*\| {versions.pop(name)} \|", page, re.MULTILINE), title
    assert versions == {}
