from collections.abc import Iterator

import pytest

from tests.onchain.contract.contract_setup import Ground, make_ground
from tests.support.chain import Evm


@pytest.fixture(scope="session")
def session_ground(evm: Evm) -> Ground:
    return make_ground(evm)


@pytest.fixture
def ground(session_ground: Ground) -> Iterator[Ground]:
    """The initial state; the changes of each test are reverted."""
    with session_ground.evm.revert_afterwards():
        yield session_ground
