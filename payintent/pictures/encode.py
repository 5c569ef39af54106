"""Makes a small picture of our own from the bytes of any other, or refuses them."""

from io import BytesIO

from PIL import Image, ImageOps

from payintent.pictures.errors import NoPictureError

SIDE_PX = 256
PIXELS_MAX = 16_000_000  # decoded at four bytes each, by one thread at a time
FORMATS = ("PNG", "JPEG", "WEBP")
_QUALITY = 80

# Our own limit is lower, and is checked before anything is decoded; Pillow's only warns.
Image.MAX_IMAGE_PIXELS = None


def encode_picture(content: bytes) -> bytes:
    """Decode a PNG, JPEG or WebP, and write it as a WebP of at most 256 pixels a side.

    Raises `NoPictureError`. Nothing but its pixels stays: no metadata, no profile, no second frame.
    """
    try:
        with Image.open(BytesIO(content), formats=FORMATS) as picture:
            _check_size(picture)
            return _written(_turned(picture))
    except NoPictureError:
        raise
    except Exception as error:  # decoders of foreign bytes raise whatever they meet
        raise NoPictureError("it is no readable PNG, JPEG or WebP") from error


def _check_size(picture: Image.Image) -> None:
    """Refuse a decompression bomb by the size that its header says: nothing is decoded yet."""
    width, height = picture.size
    if width * height > PIXELS_MAX:
        raise NoPictureError(f"it has {width} x {height} pixels")


def _turned(picture: Image.Image) -> Image.Image:
    """Decode a picture, small where its format can, and turn it as its camera says."""
    picture.draft("RGB", (2 * SIDE_PX, 2 * SIDE_PX))
    upright = ImageOps.exif_transpose(picture)
    shown = upright.convert("RGBA" if upright.has_transparency_data else "RGB")
    shown.thumbnail((SIDE_PX, SIDE_PX))
    return shown


def _written(picture: Image.Image) -> bytes:
    plain = Image.new(picture.mode, picture.size)  # what belongs to the old one stays behind
    plain.paste(picture)
    written = BytesIO()
    plain.save(written, "WEBP", quality=_QUALITY)
    return written.getvalue()
