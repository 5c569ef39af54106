"""The committed ABI and bytecode match the compiled sources byte for byte."""

from pathlib import Path

import pytest

from payintent_sandbox.chains.contracts import load
from tools.contract import FOLDER, compiled, sources

pytestmark = pytest.mark.full


@pytest.mark.parametrize("source", sources(), ids=lambda source: source.stem)
def test_the_committed_artifact_matches_the_compiled_source(source: Path) -> None:
    assert source.with_suffix(".json").read_text() == compiled(source), "run `make docs`"


def test_every_compiled_file_has_a_source() -> None:
    assert {path.with_suffix(".vy") for path in FOLDER.rglob("*.json")} == set(sources())


def test_the_compiled_bytes_do_not_depend_on_the_source_path(tmp_path: Path) -> None:
    source = FOLDER / "PaymentGateway.vy"
    copy = tmp_path / source.name
    copy.write_text(source.read_text())

    assert compiled(copy) == source.with_suffix(".json").read_text()


def test_a_selector_keeps_its_leading_zeros() -> None:
    assert load("PaymentGateway").selector("sweep") == "0x01681a62"
