"""Images for tests: created and decoded."""

from io import BytesIO
from typing import Any

from PIL import Image


def picture(
    width: int = 64,
    height: int = 64,
    kind: str = "PNG",
    *,
    mode: str = "RGB",
    colour: Any = "navy",
    of: Image.Image | None = None,
    **options: Any,
) -> bytes:
    """Encode an image, by default of a single colour, in a format."""
    written = BytesIO()
    (of or Image.new(mode, (width, height), colour)).save(written, kind, **options)
    return written.getvalue()


def opened(content: bytes) -> Image.Image:
    """Decode an image."""
    shown = Image.open(BytesIO(content))
    shown.load()
    return shown
