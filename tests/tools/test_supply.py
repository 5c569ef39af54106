"""The audit of pinned packages, and the bill of materials of installed packages."""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from typing import Any

import cyclonedx.schema
import pytest
from jsonschema import Draft7Validator
from referencing import Registry, Resource

from drills.examples import SHOPS
from tools import locked
from tools.openapi.check import CONTRACT, REDOCLY, SPECTRAL, checks
from tools.openapi.install import FOLDER

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]
LOCKS = sorted([*ROOT.glob("requirements/*.txt"), *ROOT.glob("examples/*/requirements.txt")])
MEDUSA_LOCK = ROOT / "plugins" / "medusa" / "shop" / "package-lock.json"
NODE_LOCKS = [*sorted(ROOT.glob("examples/*/package-lock.json")), MEDUSA_LOCK]
WEAK = {
    "id": "PYSEC-2026-1",
    "summary": "It gives away what it was told.",
    "affected": [
        {
            "package": {"name": "weak", "ecosystem": "PyPI"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "1.1"}]}],
        }
    ],
}


@contextmanager
def _osv(known: dict[str, list[dict[str, Any]]]) -> Iterator[str]:
    """Serve osv.dev's responses on loopback."""

    class Osv(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            found = known.get(content["package"]["name"])
            body = json.dumps({"vulns": found} if found else {}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Osv) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/v1/query"
        finally:
            server.shutdown()
            thread.join()


def _audit(tmp_path: Path, url: str, timeout_s: int = 60) -> tuple[int, list[str]]:
    lock = tmp_path / "lock.txt"
    lock.write_text("".join(f"{name}==1.0 --hash=sha256:{64 * '0'}\n" for name in ("good", "weak")))
    result = subprocess.run(
        [sys.executable, "-m", "tools.audit", str(lock)],
        cwd=ROOT,
        env={"PATH": "", "OSV_URL": url, "AUDIT_TIMEOUT_S": str(timeout_s), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stderr == ""
    return result.returncode, result.stdout.splitlines()


def test_a_known_vulnerability_in_a_pinned_package_fails_the_check(tmp_path: Path) -> None:
    with _osv({"weak": [WEAK]}) as url:
        status, lines = _audit(tmp_path, url)
    assert lines == ["weak 1.0: PYSEC-2026-1, fixed in 1.1: It gives away what it was told."]
    assert status == 1


def test_packages_without_a_known_vulnerability_pass(tmp_path: Path) -> None:
    with _osv({}) as url:
        assert _audit(tmp_path, url) == (0, ["no known vulnerabilities in 2 packages"])


def test_the_check_continues_offline_after_a_single_warning(tmp_path: Path) -> None:
    status, [line] = _audit(tmp_path, "http://127.0.0.1:1/v1/query")
    assert line.startswith("packages not audited: ")
    assert status == 0


def test_a_slow_vulnerability_service_times_out(tmp_path: Path) -> None:
    answer = (0, ["packages not audited: no response within 0 s"])
    assert _audit(tmp_path, "http://127.0.0.1:1/v1/query", timeout_s=0) == answer


def test_make_check_audits_every_lock_file_and_writes_the_bill_of_materials() -> None:
    recipe = (ROOT / "Makefile").read_text().split("\ncheck:")[1].split("\n\n")[0]
    assert {"tools.audit", "tools.sbom"} <= set(re.findall(r"-m (\S+)", recipe))
    audited = (ROOT / "tools" / "audit.py").read_text()
    pins = {
        str(path.relative_to(ROOT)): set(re.findall(r"^\S+==\S+", path.read_text(), re.MULTILINE))
        for path in LOCKS
    }
    covered = {pin for name, pinned in pins.items() if name in audited for pin in pinned}
    assert set().union(*pins.values()) == covered


def test_make_check_runs_redocly_and_spectral_on_the_contract() -> None:
    recipe = (ROOT / "Makefile").read_text().split("\ncheck:")[1].split("\n\n")[0]
    assert {"tools.openapi.check", "tools.web.check"} <= set(re.findall(r"-m (\S+)", recipe))
    words = [word for command in checks(CONTRACT) for word in command]
    assert words.count(str(ROOT / "docs" / "openapi.yaml")) == 2
    assert [word for word in words if word.endswith((REDOCLY, SPECTRAL))] == [
        str(FOLDER / "node_modules" / program) for program in (REDOCLY, SPECTRAL)
    ]


@pytest.mark.parametrize("path", NODE_LOCKS, ids=lambda path: path.parent.name)
def test_packages_in_lock_files_of_examples_and_plugins_have_hashes_and_no_addresses(
    path: Path,
) -> None:
    text = path.read_text()
    packages = [one for name, one in json.loads(text)["packages"].items() if name]
    assert packages
    assert [package for package in packages if not package["integrity"].startswith("sha512-")] == []
    assert '"resolved"' not in text


def test_no_package_in_medusas_lock_file_has_an_unapproved_licence() -> None:
    packages = json.loads(MEDUSA_LOCK.read_text())["packages"]
    licences = {name: str(package.get("license", "")) for name, package in packages.items()}
    assert licences["node_modules/@medusajs/medusa"] == "MIT"
    assert [name for name, licence in licences.items() if "LICENSE" in licence] == []


def test_every_example_is_run_and_has_a_readme_with_five_steps() -> None:
    shops = {path.parent.name: path.read_text() for path in ROOT.glob("examples/*/README.md")}
    assert set(shops) == {shop.name for shop in SHOPS}
    lines = {name: re.findall(r"^\d\. ", text, re.MULTILINE) for name, text in shops.items()}
    assert {len(readme_lines) for readme_lines in lines.values()} == {5}


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_package_in_a_lock_file_has_hashes_and_no_index_address(path: Path) -> None:
    text = path.read_text()
    assert "://" not in text
    assert "--index" not in text
    blocks = re.split(r"\n(?=[a-z0-9])", text.strip())
    assert [block for block in blocks if "--hash=sha256:" not in block] == []


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bill of materials, written twice with the same bytes."""
    outputs = []
    for name in ("first", "second"):
        folder = tmp_path_factory.mktemp(name)
        command = [sys.executable, "-m", "tools.sbom", str(folder)]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
        outputs.append((folder / "sbom.cdx.json").read_bytes())
    assert outputs[0] == outputs[1]
    return outputs[0]


def test_the_bill_of_materials_follows_the_cyclonedx_schema(document: bytes) -> None:
    folder = Path(cyclonedx.schema.__file__).parent / "_res"
    schemas = {path.name: json.loads(path.read_text()) for path in folder.glob("*.schema.json")}
    registry = Registry().with_resources(
        (f"http://cyclonedx.org/schema/{name}", Resource.from_contents(schema))
        for name, schema in schemas.items()
    )
    validator = Draft7Validator(schemas["bom-1.6.SNAPSHOT.schema.json"], registry=registry)
    assert list(validator.iter_errors(json.loads(document))) == []
    assert list(validator.iter_errors({})) != []


def test_the_bill_of_materials_lists_installed_packages_and_their_dependents(
    document: bytes,
) -> None:
    bill = json.loads(document)
    versions = {part["name"]: part["version"] for part in bill["components"]}
    assert versions == {name: version(name) for name in versions}
    pinned = set(
        re.findall(r"^([\w.-]+)==", (ROOT / "requirements/run.txt").read_text(), re.MULTILINE)
    )
    assert pinned - versions.keys() == {"colorama"}  # only on Windows
    [edges] = [
        dependency["dependsOn"]
        for dependency in bill["dependencies"]
        if "payintent" in dependency["ref"]
    ]
    direct = {edge.removeprefix("pkg:pypi/").split("@")[0] for edge in edges}
    declared = (ROOT / "pyproject.toml").read_text().split("\ndependencies = [")[1].split("\n]")[0]
    assert direct == set(re.findall(r'^    "([\w.-]+)', declared, re.MULTILINE))


@pytest.mark.parametrize("name", ["run.txt", "otel.txt", "sandbox.txt"])
def test_the_development_packages_do_not_replace_packages_of_the_service(name: str) -> None:
    folder = ROOT / "requirements"
    versions = {package.name: package.version for package in locked.read(folder / "dev.txt")}
    subset = {package.name: package.version for package in locked.read(folder / name)}
    assert {name: versions.get(name) for name in subset} == subset
