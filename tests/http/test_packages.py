"""Merchants can install SDKs and plugins from the installation."""

import asyncio
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from payintent.runtime.settings import Settings
from payintent.runtime.version import VERSION
from tests.docs.parse_pages import ROOT
from tests.support.world import Api

NODE_PACKAGE = "payintent-sdk-1.0.0-rc.1.tgz"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the Python SDK, and add an npm package and a file that is not a package."""
    folder = tmp_path_factory.mktemp("packages")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT / "sdks" / "python", check=True, capture_output=True)
    (folder / NODE_PACKAGE).write_bytes(b"npm package")
    (folder / "notes.txt").write_text("not a package")
    return folder


@pytest.fixture
def settings(settings: Settings, packages: Path) -> Settings:
    return settings.model_copy(update={"packages_dir": str(packages)})


async def test_the_index_lists_python_projects_and_other_packages(api: Api, packages: Path) -> None:
    index = await api.send("GET", "/packages/")
    assert index.headers["Content-Type"] == "text/html; charset=utf-8"
    text = index.body.decode()
    assert '<a href="/packages/payintent-sdk/">payintent-sdk</a>' in text
    assert f'<a href="/packages/files/{NODE_PACKAGE}">' in text
    assert "notes.txt" not in text
    wheel = packages / f"payintent_sdk-{VERSION}-py3-none-any.whl"
    digest = sha256(wheel.read_bytes()).hexdigest()
    project = (await api.send("GET", "/packages/payintent-sdk/")).body.decode()
    assert f"/packages/files/{wheel.name}#sha256={digest}" in project
    file = await api.send("GET", f"/packages/files/{NODE_PACKAGE}")
    assert (file.body, file.headers["Content-Type"]) == (b"npm package", "application/gzip")
    headers = {"If-None-Match": file.headers["ETag"]}
    assert (await api.send("GET", f"/packages/files/{NODE_PACKAGE}", headers=headers)).status == 304


async def test_only_packages_can_be_downloaded(api: Api) -> None:
    for path in ("files/notes.txt", "files/..%2F..%2Fetc%2Fpasswd", "files/", "unknown/"):
        answer = await api.send("GET", f"/packages/{path}")
        assert (answer.status, answer.json["code"]) == (404, "NOT_FOUND"), path
    redirect = await api.send("GET", "/packages")
    assert (redirect.status, redirect.headers["Location"]) == (308, "/packages/")


@pytest.mark.full
async def test_pip_installs_from_the_index_by_version_and_digest(api: Api, tmp_path: Path) -> None:
    command = [
        *(sys.executable, "-m", "pip", "install", "--no-deps", "--isolated", "--no-cache-dir"),
        *("--index-url", f"{api.base}/packages/", "--target", str(tmp_path)),
        f"payintent-sdk=={VERSION}",
    ]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    assert (tmp_path / "payintent_sdk" / "version.py").is_file()
