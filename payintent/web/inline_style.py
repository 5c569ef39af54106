"""A page's style sheet in the page itself: a browser paints it without asking for more."""

from base64 import b64encode
from dataclasses import dataclass
from hashlib import sha256


@dataclass(frozen=True, slots=True)
class InlineStyle:
    """The text of a `<style>`, and the source that allows it in a Content-Security-Policy."""

    text: str
    source: str  # 'sha256-…' of the text to the letter (CSP Level 3, section 6.7.2.4)


def inline_style(text: str) -> InlineStyle:
    """Prepare a style sheet of ours to stand in pages; it must not contain `</style`."""
    digest = b64encode(sha256(text.encode()).digest()).decode()
    return InlineStyle(text, f"'sha256-{digest}'")
