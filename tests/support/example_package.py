"""Build and install the package in docs/contribute/add-a-gateway.md."""

import subprocess
import sys
import tomllib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib import invalidate_caches
from importlib.metadata import EntryPoint, distributions
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from payintent.gateways.http_client import GatewayHttpClient
from payintent.gateways.packages import ENTRY_POINT_GROUP, load_gateway_packages
from payintent.gateways.port import Gateway
from payintent.service import BUILT_IN_PROVIDERS
from tests.docs.parse_pages import blocks, page

MODULE = "examplepay"


def install_example(folder: Path) -> Path:
    """Build the wheel as the page describes and unpack it like pip; return the folder."""
    project, installed = folder / "project", folder / "installed"
    project.mkdir()
    code, pyproject = _files()
    (project / f"{MODULE}.py").write_text(code)
    (project / "pyproject.toml").write_text(pyproject)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "dist"]
    subprocess.run(build, cwd=project, check=True, capture_output=True)
    [wheel] = (project / "dist").glob("*.whl")
    assert wheel.name in page("docs/contribute/add-a-gateway.md")
    with ZipFile(wheel) as archive:
        archive.extractall(installed)
    return installed


def lay_out_example(folder: Path) -> Path:
    """Write the files that `install_example` unpacks, without a build. A test compares both."""
    code, pyproject = _files()
    project: dict[str, Any] = tomllib.loads(pyproject)["project"]
    distribution = f"{project['name'].replace('-', '_')}-{project['version']}"
    (folder / f"{MODULE}.py").write_text(code)
    info = folder / f"{distribution}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.4\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    entries = project["entry-points"][ENTRY_POINT_GROUP]
    lines = [f"{name} = {value}" for name, value in entries.items()]
    (info / "entry_points.txt").write_text("\n".join([f"[{ENTRY_POINT_GROUP}]", *lines, ""]))
    return folder


def _files() -> tuple[str, str]:
    text = page("docs/contribute/add-a-gateway.md")
    [code] = [block for block in blocks(text, "python") if "class ExamplePay" in block]
    [pyproject] = blocks(text, "toml")
    return code, pyproject


def entry_points_in(folder: Path) -> list[EntryPoint]:
    """Find the gateways of the packages installed in a folder."""
    return [
        entry
        for distribution in distributions(path=[str(folder)])
        for entry in distribution.entry_points
        if entry.group == ENTRY_POINT_GROUP
    ]


@contextmanager
def loading_example(folder: Path) -> Generator[Callable[[GatewayHttpClient], Gateway]]:
    """Yield the factory of the example's adapter, loaded from the folder as the service does."""

    def load(http: GatewayHttpClient) -> Gateway:
        # The path is restored, because other services in this process would find the package.
        sys.path.append(str(folder))
        invalidate_caches()
        try:
            return load_gateway_packages(http, BUILT_IN_PROVIDERS, entry_points_in(folder))[
                "example"
            ]
        finally:
            sys.path.remove(str(folder))

    try:
        yield load
    finally:
        sys.modules.pop(MODULE, None)
