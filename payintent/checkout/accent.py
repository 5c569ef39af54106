"""Accessible shades of a merchant's accent colour for the light and dark checkout themes."""

from dataclasses import dataclass
from functools import lru_cache

#: Minimum contrast ratios in WCAG 2.2: 1.4.3 for text, 1.4.11 for controls.
TEXT_CONTRAST = 4.5
CONTROL_CONTRAST = 3.0
_MIX_STEPS = 64  # from the merchant's colour to black or white
_BLACK, _WHITE = (0, 0, 0), (255, 255, 255)
_LINEAR_BELOW = 0.04045

_Rgb = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Shades:
    """Colours in one theme, as `#rrggbb`. `text` is the text colour of buttons."""

    button: str
    text: str
    link: str


@dataclass(frozen=True, slots=True)
class Theme:
    background: str
    surface: str


#: Background colours; they must match checkout.css.
LIGHT = Theme(background="#ffffff", surface="#f6f8fa")
DARK = Theme(background="#16191d", surface="#1e2329")


@lru_cache(maxsize=1_000)
def accent_shades(colour: str, theme: Theme) -> Shades:
    """Return the shades closest to `colour` that have sufficient contrast in a theme.

    The colour is mixed with black for the light theme and with white for the dark theme.
    """
    background, surface = _rgb(theme.background), _rgb(theme.surface)
    target = _BLACK if _luminance(background) > _luminance(_rgb("#808080")) else _WHITE
    backgrounds = (background, surface)
    button = _nearest_shade(_rgb(colour), target, backgrounds, CONTROL_CONTRAST)
    link = _nearest_shade(_rgb(colour), target, backgrounds, TEXT_CONTRAST)
    text = _WHITE if _contrast(button, _WHITE) >= TEXT_CONTRAST else _BLACK
    return Shades(_hex(button), _hex(text), _hex(link))


def contrast(first: str, second: str) -> float:
    """Return the WCAG 2.2 contrast ratio of two colours, from 1 to 21."""
    return _contrast(_rgb(first), _rgb(second))


def _nearest_shade(
    colour: _Rgb, target: _Rgb, backgrounds: tuple[_Rgb, ...], minimum: float
) -> _Rgb:
    for step in range(_MIX_STEPS + 1):
        shade = _mix(colour, target, step)
        if all(_contrast(shade, background) >= minimum for background in backgrounds):
            return shade
    return target


def _mix(colour: _Rgb, target: _Rgb, step: int) -> _Rgb:
    red, green, blue = (
        (part * (_MIX_STEPS - step) + target_part * step) // _MIX_STEPS
        for part, target_part in zip(colour, target, strict=True)
    )
    return red, green, blue


def _contrast(first: _Rgb, second: _Rgb) -> float:
    low, high = sorted((_luminance(first), _luminance(second)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: _Rgb) -> float:
    red, green, blue = (_linear(part / 255) for part in colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(part: float) -> float:
    return part / 12.92 if part <= _LINEAR_BELOW else ((part + 0.055) / 1.055) ** 2.4


def _rgb(colour: str) -> _Rgb:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def _hex(colour: _Rgb) -> str:
    return "#" + "".join(f"{part:02x}" for part in colour)
