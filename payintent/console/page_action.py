"""Links from a page to the forms of operations."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PageAction:
    label: str
    href: str


def offer(links: Iterable[tuple[str, str | None]]) -> list[PageAction]:
    """Return the actions that the role allows: those with a link."""
    return [PageAction(label=label, href=href) for label, href in links if href is not None]
