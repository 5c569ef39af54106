"""Both ways in which new payments are written: PostgreSQL can do what Citus needs, too."""

import pytest

from payintent.storage.database import Database


@pytest.fixture(params=["in one statement", "in steps"])
def dialect(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test twice, the second time as if its databases were of a Citus cluster."""

    async def is_distributed(_: Database) -> bool:
        return request.param == "in steps"

    monkeypatch.setattr(Database, "is_distributed", is_distributed)
    return request.param
