"""What can be done from a page: links to the forms of operations."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PageAction:
    label: str
    href: str


def offer(ways: Iterable[tuple[str, str | None]]) -> list[PageAction]:
    """Return the actions that have a link; one that the role does not include has none."""
    return [PageAction(label=label, href=href) for label, href in ways if href is not None]
