"""Opening an installation's database fails with the secrets of another installation."""

import pytest
from pydantic import SecretStr

from payintent.db.availability import COMMAND_WAIT_S
from payintent.runtime.encryption import EncryptionKeyError, load_encryption
from payintent.service import open_database
from tests.support.timeouts import wait_until
from tests.support.world import World

_OTHER_KEY = "ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA="
_PROCESS = "payintent-opened-here"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"pepper": SecretStr(_OTHER_KEY)}, "the pepper does not belong"),
        ({"keyring": SecretStr(f"test:{_OTHER_KEY}")}, "key 'test' does not belong"),
        ({"keyring": SecretStr(f"other:{_OTHER_KEY}")}, "the key ring lacks key 'test'"),
    ],
)
async def test_a_database_opened_with_the_wrong_secrets_is_rejected_and_closed(
    world: World, changes: dict[str, SecretStr], reason: str
) -> None:
    settings = world.service.settings.model_copy(update=changes)
    with pytest.raises(EncryptionKeyError, match=reason):
        await open_database(settings, load_encryption(settings), _PROCESS, COMMAND_WAIT_S)

    async def is_closed() -> bool:
        query = "SELECT 1 FROM pg_stat_activity WHERE application_name = $1"
        return not await world.rows(query, _PROCESS)

    await wait_until(is_closed, "its connections are closed")


async def test_a_database_can_be_opened_with_its_own_secrets(world: World) -> None:
    settings = world.service.settings
    database = await open_database(settings, load_encryption(settings), _PROCESS, COMMAND_WAIT_S)
    [row] = await database.fetch("SELECT current_setting('application_name') AS process")
    assert row["process"] == _PROCESS
    await database.close()
