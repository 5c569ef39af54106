"""The committed ABI and bytecode match the compiled sources byte for byte."""

from pathlib import Path

import pytest

from payintent_sandbox.chains.contracts import load
from tools.contract import FOLDER, compiled, sources

pytestmark = pytest.mark.full


@pytest.mark.parametrize("source", sources(), ids=lambda source: source.stem)
def test_the_committed_file_is_what_the_source_compiles_to(source: Path) -> None:
    assert source.with_suffix(".json").read_text() == compiled(source), "run `make docs`"


def test_every_compiled_file_has_its_source() -> None:
    assert {one.with_suffix(".vy") for one in FOLDER.rglob("*.json")} == set(sources())


def test_a_copy_elsewhere_compiles_to_the_same_bytes(tmp_path: Path) -> None:
    source = FOLDER / "PaymentGateway.vy"
    copy = tmp_path / source.name
    copy.write_text(source.read_text())

    assert compiled(copy) == source.with_suffix(".json").read_text()


def test_selectors_have_eight_digits_zeros_in_front_included() -> None:
    assert load("PaymentGateway").selector("sweep") == "0x01681a62"
