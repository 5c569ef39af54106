from collections.abc import Iterator

import pytest

from tests.onchain.contract.ground import Ground, make_ground
from tests.support.chain import Evm


@pytest.fixture(scope="session")
def made(evm: Evm) -> Ground:
    return make_ground(evm)


@pytest.fixture
def ground(made: Ground) -> Iterator[Ground]:
    """The ground in its initial state, because each test's changes are undone."""
    with made.evm.revert_afterwards():
        yield made
