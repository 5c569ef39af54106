"""What Maven fetched, held to `maven.sha256`: every jar by its hash and its path, with version.

Maven has no lock of its own. `python -m tests.clients.maven_lock FOLDER` writes the list anew from
a local repository; look at what has changed before it is committed.
"""

import hashlib
import sys
from pathlib import Path

LOCK = Path(__file__).parent / "maven.sha256"


def check_fetched(repository: Path, lock: Path = LOCK) -> None:
    """Refuse a jar of a local repository that the list does not have with this hash."""
    listed = {tuple(line.split(maxsplit=1)) for line in lock.read_text().splitlines()}
    strange = [name for digest, name in _fetched(repository) if (digest, name) not in listed]
    assert not strange, f"not as in {lock.name}: {', '.join(strange)}"


def _fetched(repository: Path) -> list[tuple[str, str]]:
    """List the hash and the path of every jar."""
    return [
        (hashlib.sha256(jar.read_bytes()).hexdigest(), str(jar.relative_to(repository)))
        for jar in sorted(repository.rglob("*.jar"))
    ]


if __name__ == "__main__":
    LOCK.write_text("".join(f"{digest}  {name}\n" for digest, name in _fetched(Path(sys.argv[1]))))
