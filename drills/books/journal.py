"""A merchant's journal of its feed: what was read, and where to go on, written together.

One line holds a page's events and the `after` behind them, so that a reader that is killed between
two writes has both or neither. A line that is not whole was never written.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Journal:
    """The file of one merchant."""

    path: Path

    def mend(self) -> str | None:
        """Cut off a line that is not whole; gives the `after` to go on with, if there is one."""
        if not self.path.exists():
            return None
        written = self.path.read_bytes()
        whole = written[: written.rfind(b"\n") + 1]
        if len(whole) < len(written):
            os.truncate(self.path, len(whole))
        lines = whole.splitlines()
        return json.loads(lines[-1])["after"] if lines else None

    def add(self, after: str, ids: list[str]) -> None:
        """Write a page."""
        line = json.dumps({"after": after, "ids": ids}).encode() + b"\n"
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, line)
            os.fsync(file)
        finally:
            os.close(file)

    def ids(self) -> list[str]:
        """Give the events as they were read, in order."""
        if not self.path.exists():
            return []
        whole, _, _ = self.path.read_text().rpartition("\n")
        return [found for line in whole.splitlines() for found in json.loads(line)["ids"]]


def journal_of(folder: Path, merchant_id: int) -> Journal:
    """Give the journal of a merchant."""
    return Journal(folder / f"feed-{merchant_id}.jsonl")
