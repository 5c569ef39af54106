"""Every accent colour of a merchant is legible in both themes."""

import random

import pytest

from payintent.checkout.accent import (
    CONTROL_CONTRAST,
    DARK,
    LIGHT,
    TEXT_CONTRAST,
    Theme,
    accent_shades,
    contrast,
)
from payintent.checkout.static_files import page_style

_RANDOM = random.Random(64)
_RANDOM_COLOURS = [f"#{_RANDOM.randrange(2**24):06x}" for _ in range(300)]
_DIFFICULT_COLOURS = [
    "#000000",
    "#ffffff",
    "#ffff00",
    "#16191d",
    "#767676",
    "#00ff00",
    "#0000ff",
    "#ffd400",
]


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["bright", "dark"])
def test_every_colour_is_corrected_until_it_is_legible(theme: Theme) -> None:
    for colour in (*_DIFFICULT_COLOURS, *_RANDOM_COLOURS):
        shades = accent_shades(colour, theme)
        for ground in (theme.background, theme.surface):
            assert contrast(shades.link, ground) >= TEXT_CONTRAST, colour
            assert contrast(shades.button, ground) >= CONTROL_CONTRAST, colour
        assert contrast(shades.text, shades.button) >= TEXT_CONTRAST, colour


def test_a_colour_with_enough_contrast_is_unchanged() -> None:
    assert accent_shades("#6f42c1", LIGHT).button == "#6f42c1"
    assert accent_shades("#6f42c1", LIGHT).link == "#6f42c1"
    assert accent_shades("#7ab0ff", DARK).link == "#7ab0ff"


def test_contrast_is_computed_as_wcag_defines_it() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
    assert contrast("#ffffff", "#ffffff") == 1


def test_a_colour_is_appended_to_the_style_and_changes_its_csp_source() -> None:
    plain, tinted = page_style(), page_style("#0b5bd3")
    assert tinted.text.startswith(plain.text)
    assert tinted.text != plain.text
    assert len({plain.csp_source, tinted.csp_source, page_style("#0b5bd4").csp_source}) == 3
