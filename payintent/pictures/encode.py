"""Makes a small picture of our own from the bytes of any other, or refuses them."""

from io import BytesIO

from PIL import Image, ImageOps

from payintent.pictures.errors import NoPictureError

SIDE_PX = 256
#: By format, in pixels: JPEG is decoded small; PNG and WebP whole, at 4 and at some 17 bytes each.
PIXELS_MAX = {"JPEG": 16_000_000, "PNG": 9_000_000, "WEBP": 9_000_000}
FORMATS = tuple(PIXELS_MAX)
#: Scans of a JPEG; a progressive one has some ten. Each is decoded over all pixels, though it may
#: have 31 bytes: as many as fit into 4 MiB would take twenty minutes.
SCANS_MAX = 100
_SCAN = b"\xff\xda"  # is nowhere else in compressed data, where ff is followed by 00
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
            _check_scans(picture, content)
            return _written(_turned(picture))
    except NoPictureError:
        raise
    except Exception as error:  # decoders of foreign bytes raise whatever they meet
        raise NoPictureError("it is no readable PNG, JPEG or WebP") from error


def _check_size(picture: Image.Image) -> None:
    """Refuse a decompression bomb by the size that its header says: nothing is decoded yet."""
    width, height = picture.size
    if width * height > PIXELS_MAX[picture.format or ""]:
        raise NoPictureError(f"it has {width} x {height} pixels")


def _check_scans(picture: Image.Image, content: bytes) -> None:
    """Refuse a JPEG that is short and takes long."""
    if picture.format == "JPEG" and content.count(_SCAN) > SCANS_MAX:
        raise NoPictureError(f"it has more than {SCANS_MAX} scans")


def _turned(picture: Image.Image) -> Image.Image:
    """Decode a picture, small where its format can, and turn it as its camera says.

    It is made small before anything else, so that no more large copies are made than needed.
    """
    picture.draft("RGB", (2 * SIDE_PX, 2 * SIDE_PX))
    mode = "RGBA" if picture.has_transparency_data else "RGB"
    shown = picture if picture.mode == mode else picture.convert(mode)
    shown.thumbnail((SIDE_PX, SIDE_PX))
    return ImageOps.exif_transpose(shown)


def _written(picture: Image.Image) -> bytes:
    plain = Image.new(picture.mode, picture.size)  # what belongs to the old one stays behind
    plain.paste(picture)
    written = BytesIO()
    plain.save(written, "WEBP", quality=_QUALITY)
    return written.getvalue()
