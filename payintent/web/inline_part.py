"""Style sheets and scripts within a page, which save the browser a request."""

from base64 import b64encode
from dataclasses import dataclass
from hashlib import sha256


@dataclass(frozen=True, slots=True)
class InlinePart:
    text: str
    source: str  # 'sha256-…' of the exact text (CSP Level 3, section 6.7.2.4)


def inline_part(text: str) -> InlinePart:
    """Return a style or script with its CSP source; the text must not contain its end tag."""
    digest = b64encode(sha256(text.encode()).digest()).decode()
    return InlinePart(text, f"'sha256-{digest}'")
