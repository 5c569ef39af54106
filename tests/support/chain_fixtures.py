"""Development chain fixtures, for the test folders that need them."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from payintent_sandbox.chains.anvil import Anvil
from payintent_sandbox.chains.anvil_binary import Binary
from tests.support.chain import Evm, fetched_anvil


@pytest.fixture(scope="session")
def anvil() -> Binary:
    return fetched_anvil()


@pytest.fixture(scope="session")
def evm(anvil: Binary) -> Iterator[Evm]:
    """A chain for all tests of a process. Each test's changes are undone."""
    with tempfile.TemporaryDirectory(prefix="payintent-chain-") as folder:
        chain = Anvil(612_055, log=Path(folder) / "anvil.log", binary=anvil)
        client = Evm(chain.start())
        yield client
        client.close()
        chain.stop()


@pytest.fixture
def chain_url(anvil: Binary, tmp_path: Path) -> Iterator[str]:
    """A separate chain for the test."""
    chain = Anvil(612_055, log=tmp_path / "anvil.log", binary=anvil)
    yield chain.start()
    chain.stop()
