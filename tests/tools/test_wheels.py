"""The two built distributions: the service runs without its sandbox."""

import re
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from zipfile import ZipFile

import pytest

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]
_PIN = re.compile(r"^([\w.-]+)==[^;\n]*?( ;[^\\\n]*)?\\?$", re.MULTILINE)


def _build(project: Path, folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=project, check=True, capture_output=True)
    [wheel] = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def service_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _build(ROOT, tmp_path_factory.mktemp("service"))


@pytest.fixture(scope="module")
def sandbox_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _build(ROOT / "payintent_sandbox", tmp_path_factory.mktemp("sandbox"))


class Environment:
    """A virtual environment with the packages in requirements/run.txt, without the source tree."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, symlinks=True, with_pip=False)
        self.python = folder / "bin" / "python"
        paths = sysconfig.get_paths(vars={"base": str(folder), "platbase": str(folder)})
        self._libraries = Path(paths["purelib"])
        for name in _pinned():
            self._link(name)

    def install(self, wheel: Path) -> None:
        """Unpack a wheel like pip."""
        with ZipFile(wheel) as archive:
            archive.extractall(self._libraries)

    def run(self, *words: str) -> str:
        command = [self.python, "-I", *words]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
        return result.stdout

    def _link(self, name: str) -> None:
        """Link every file and folder that a distribution installs."""
        package = distribution(name)
        for top in {file.parts[0] for file in package.files or () if ".." not in file.parts}:
            link = self._libraries / top
            if not link.exists():
                link.symlink_to(Path(str(package.locate_file(top))))


def _pinned() -> Iterator[str]:
    for name, marker in _PIN.findall((ROOT / "requirements" / "run.txt").read_text()):
        if not marker or "win32" not in marker:
            yield name


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment(tmp_path / "environment")


def test_the_service_runs_from_its_wheel_without_the_sandbox(
    environment: Environment, service_wheel: Path
) -> None:
    environment.install(service_wheel)
    assert not [name for name in ZipFile(service_wheel).namelist() if "sandbox" in name]
    code = (
        "import importlib.util, payintent.app, payintent.worker;"
        "from payintent.http.docs.documents import read_document;"
        "from payintent.evm.event_logs import load_compiled_contract;"
        "print(importlib.util.find_spec('payintent_sandbox'), payintent.app.__file__);"
        "from payintent.http.docs.documents import GUIDES, OPENAPI, RUNBOOK;"
        "[read_document(path) for path in (OPENAPI, RUNBOOK, *(each.path for each in GUIDES))];"
        "load_compiled_contract()"
    )
    origin, place = environment.run("-c", code).split()
    assert origin == "None"
    assert not Path(place).is_relative_to(ROOT)
    commands = environment.run("-m", "payintent", "--help")
    assert "worker" in commands
    assert "devchain" not in commands


def test_the_sandbox_wheel_adds_its_commands(
    environment: Environment, service_wheel: Path, sandbox_wheel: Path
) -> None:
    environment.install(service_wheel)
    environment.install(sandbox_wheel)
    names = ZipFile(sandbox_wheel).namelist()
    assert {name.partition("/")[0] for name in names} == {
        "payintent_sandbox",
        f"payintent_sandbox-{distribution('payintent-sandbox').version}.dist-info",
    }
    assert "payintent_sandbox/pyproject.toml" not in names
    assert "devchain" in environment.run("-m", "payintent", "--help")
