"""Every package states the product version, and both SDKs the API version."""

import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from payintent.http.docs.documents import read_openapi_document
from payintent.runtime import version
from payintent.runtime.version import API_VERSION, UNKNOWN, VERSION

ROOT = Path(__file__).parents[2]
#: The same version by the rules of npm, Helm and WordPress (semantic versioning).
SEMANTIC = re.sub(r"(?<=\d)rc", "-rc.", VERSION)
PYTHON_PROJECTS = (".", "payintent_sandbox", "sdks/python", "sdks/cli", "sdks/mcp")
NODE_PROJECTS = ("sdks/typescript", "payintent/checkout/sdk", "plugins/medusa")


@pytest.mark.parametrize("folder", PYTHON_PROJECTS)
def test_a_python_package_has_the_product_version(folder: str) -> None:
    project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
    assert project["version"] == VERSION
    pinned = [
        requirement.partition("==")[2]
        for requirements in (
            project["dependencies"],
            *project.get("optional-dependencies", {}).values(),
        )
        for requirement in requirements
        if requirement.startswith("payintent")
    ]
    assert set(pinned) <= {VERSION}


@pytest.mark.parametrize("folder", NODE_PROJECTS)
def test_a_node_package_has_the_product_version(folder: str) -> None:
    package = json.loads((ROOT / folder / "package.json").read_text())
    assert package["version"] == SEMANTIC
    peers = package.get("peerDependencies", {})
    assert peers.get("payintent-sdk", SEMANTIC) == SEMANTIC


def test_the_chart_the_plugin_and_the_document_state_the_versions() -> None:
    chart = yaml.safe_load((ROOT / "deploy" / "helm" / "payintent" / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (SEMANTIC, VERSION)
    plugin = (ROOT / "plugins" / "woocommerce" / "payintent" / "payintent.php").read_text()
    assert f" * Version: {SEMANTIC}\n" in plugin
    info = read_openapi_document()["info"]
    assert (info["version"], info["x-product-version"]) == (API_VERSION, VERSION)


def test_both_sdks_state_the_versions() -> None:
    python = (ROOT / "sdks" / "python" / "payintent_sdk" / "version.py").read_text()
    typescript = (ROOT / "sdks" / "typescript" / "src" / "version.ts").read_text()
    assert re.findall(r'"(.+)"', python.partition('"""\n\n')[2]) == [VERSION, API_VERSION]
    assert re.findall(r'"(.+)"', typescript) == [SEMANTIC, API_VERSION]


def _git(folder: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=x", "-c", "user.email=x@example.com", *words]
    return subprocess.run(
        command, cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


def test_the_commit_is_read_from_loose_packed_and_detached_heads(tmp_path: Path) -> None:
    _git(tmp_path, "init", "-q", "-b", "main")
    _git(tmp_path, "commit", "-q", "--allow-empty", "-m", "First")
    commit = _git(tmp_path, "rev-parse", "HEAD")
    git_folder = tmp_path / ".git"
    assert version.read_checked_out_commit(git_folder) == commit
    _git(tmp_path, "pack-refs", "--all")
    assert version.read_checked_out_commit(git_folder) == commit
    _git(tmp_path, "checkout", "-q", "--detach")
    assert version.read_checked_out_commit(git_folder) == commit
    (git_folder / "HEAD").write_text("ref: refs/heads/other\n")
    assert version.read_checked_out_commit(git_folder) == UNKNOWN
