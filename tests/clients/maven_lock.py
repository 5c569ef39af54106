"""Compare the jars that Maven fetched with the hashes and paths in `maven.sha256`.

Maven has no lock file. `python -m tests.clients.maven_lock FOLDER` rewrites the list from a local
repository. Review its changes before you commit it.
"""

import hashlib
import sys
from pathlib import Path

LOCK = Path(__file__).parent / "maven.sha256"


def check_fetched(repository: Path, lock: Path = LOCK) -> None:
    """Reject a jar in a local repository that is not in the list with this hash."""
    entries = {tuple(line.split(maxsplit=1)) for line in lock.read_text().splitlines()}
    strange = [name for digest, name in _fetched(repository) if (digest, name) not in entries]
    assert not strange, f"not listed in {lock.name} with this hash: {', '.join(strange)}"


def _fetched(repository: Path) -> list[tuple[str, str]]:
    """List the hash and the path of every jar."""
    return [
        (hashlib.sha256(jar.read_bytes()).hexdigest(), str(jar.relative_to(repository)))
        for jar in sorted(repository.rglob("*.jar"))
    ]


if __name__ == "__main__":
    LOCK.write_text("".join(f"{digest}  {name}\n" for digest, name in _fetched(Path(sys.argv[1]))))
