import pytest

from payintent_sandbox.chains.anvil_binary import Binary
from tests.support.chain import fetched_anvil


@pytest.fixture(scope="session")
def anvil() -> Binary:
    return fetched_anvil()
