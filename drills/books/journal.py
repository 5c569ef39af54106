"""A merchant's journal of its event feed.

Each line contains a page's events and the next `after`, so a reader that is killed has stored
either both or neither. An incomplete line is ignored.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Journal:
    path: Path

    def mend(self) -> str | None:
        """Remove an incomplete line, and return the last `after`, if any."""
        if not self.path.exists():
            return None
        content = self.path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            os.truncate(self.path, len(whole))
        lines = whole.splitlines()
        return json.loads(lines[-1])["after"] if lines else None

    def add(self, after: str, ids: list[str]) -> None:
        line = json.dumps({"after": after, "ids": ids}).encode() + b"\n"
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, line)
            os.fsync(file)
        finally:
            os.close(file)

    def ids(self) -> list[str]:
        """Return the event IDs in the order in which they were read."""
        if not self.path.exists():
            return []
        whole, _, _ = self.path.read_text().rpartition("\n")
        return [event_id for line in whole.splitlines() for event_id in json.loads(line)["ids"]]


def journal_of(folder: Path, merchant_id: int) -> Journal:
    return Journal(folder / f"feed-{merchant_id}.jsonl")
