import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from payintent.sandbox.anvil import Anvil
from payintent.sandbox.anvil_binary import Binary
from tests.support.chain import Evm, fetched_anvil


@pytest.fixture(scope="session")
def anvil() -> Binary:
    return fetched_anvil()


@pytest.fixture(scope="session")
def evm(anvil: Binary) -> Iterator[Evm]:
    """One chain for all tests of a process; each undoes what it did there."""
    with tempfile.TemporaryDirectory(prefix="payintent-chain-") as folder:
        chain = Anvil(612_055, log=Path(folder) / "anvil.log", binary=anvil)
        client = Evm(chain.start())
        yield client
        client.close()
        chain.stop()
