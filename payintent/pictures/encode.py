"""Re-encoding of foreign pictures as small WebP files."""

from io import BytesIO

from PIL import Image, ImageOps

from payintent.pictures.errors import NoPictureError

SIDE_PX = 256
#: By format. JPEG is decoded at a reduced size; PNG and WebP need 4 and about 17 bytes per pixel.
PIXELS_MAX = {"JPEG": 16_000_000, "PNG": 9_000_000, "WEBP": 9_000_000}
FORMATS = tuple(PIXELS_MAX)
#: Scans of a JPEG; a progressive JPEG has about ten. A scan of 31 bytes is decoded over all pixels:
#: decoding the scans that fit into 4 MiB would take twenty minutes.
SCANS_MAX = 100
_SCAN = b"\xff\xda"  # unique: in compressed data, ff is followed by 00
_QUALITY = 80

# Pillow only warns; our own limit is lower and is checked before decoding.
Image.MAX_IMAGE_PIXELS = None


def encode_picture(content: bytes) -> bytes:
    """Encode a PNG, JPEG or WebP as a WebP with sides of at most 256 pixels.

    Metadata, colour profiles and further frames are dropped. Raises `NoPictureError`.
    """
    try:
        with Image.open(BytesIO(content), formats=FORMATS) as picture:
            _check_size(picture)
            _check_scans(picture, content)
            return _write_webp(_shrink(picture))
    except NoPictureError:
        raise
    except Exception as error:  # decoders raise all kinds of errors
        raise NoPictureError("not a readable PNG, JPEG or WebP") from error


def _check_size(picture: Image.Image) -> None:
    """Reject a decompression bomb by the size in its header, before decoding."""
    width, height = picture.size
    if width * height > PIXELS_MAX[picture.format or ""]:
        raise NoPictureError(f"too large: {width} x {height} pixels")


def _check_scans(picture: Image.Image, content: bytes) -> None:
    """Reject a short JPEG that takes long to decode."""
    if picture.format == "JPEG" and content.count(_SCAN) > SCANS_MAX:
        raise NoPictureError(f"more than {SCANS_MAX} scans")


def _shrink(picture: Image.Image) -> Image.Image:
    """Decode a picture, shrink it, and then apply its EXIF orientation.

    Shrinking comes first, so that there are fewer large copies.
    """
    picture.draft("RGB", (2 * SIDE_PX, 2 * SIDE_PX))
    mode = "RGBA" if picture.has_transparency_data else "RGB"
    thumbnail = picture if picture.mode == mode else picture.convert(mode)
    thumbnail.thumbnail((SIDE_PX, SIDE_PX))
    return ImageOps.exif_transpose(thumbnail)


def _write_webp(picture: Image.Image) -> bytes:
    plain = Image.new(picture.mode, picture.size)  # without metadata
    plain.paste(picture)
    buffer = BytesIO()
    plain.save(buffer, "WEBP", quality=_QUALITY)
    return buffer.getvalue()
