"""The lock file for Maven's downloads rejects artifacts that it does not list."""

import hashlib
from pathlib import Path

import pytest

from tests.clients.maven_lock import check_fetched

pytestmark = pytest.mark.full

_NAME = "org/example/thing/1.0/thing-1.0.jar"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    jar = tmp_path / "repository" / _NAME
    jar.parent.mkdir(parents=True)
    jar.write_bytes(b"a jar")
    (tmp_path / "lock").write_text(f"{hashlib.sha256(b'a jar').hexdigest()}  {_NAME}\n")
    return tmp_path / "repository"


def test_listed_jars_are_accepted(repository: Path) -> None:
    check_fetched(repository, repository.parent / "lock")


@pytest.mark.parametrize("name", [_NAME, _NAME.replace("1.0", "1.1")])
def test_a_modified_jar_or_a_different_version_is_refused(repository: Path, name: str) -> None:
    jar = repository / name
    jar.parent.mkdir(parents=True, exist_ok=True)
    jar.write_bytes(b"another jar")
    with pytest.raises(AssertionError, match=name):
        check_fetched(repository, repository.parent / "lock")
