"""Create and decode images for tests."""

from io import BytesIO
from typing import Any

from PIL import Image


def make_picture(
    width: int = 64,
    height: int = 64,
    kind: str = "PNG",
    *,
    mode: str = "RGB",
    colour: Any = "navy",
    source: Image.Image | None = None,
    **options: Any,
) -> bytes:
    """Encode an image, which has a single colour unless a source is given."""
    buffer = BytesIO()
    (source or Image.new(mode, (width, height), colour)).save(buffer, kind, **options)
    return buffer.getvalue()


def decode_image(content: bytes) -> Image.Image:
    image = Image.open(BytesIO(content))
    image.load()
    return image
