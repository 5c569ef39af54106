"""Encrypted secrets: their key, their context, and their database."""

import base64
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest
from pydantic import SecretStr

from payintent.db.sealing import PayerSealing
from payintent.runtime.encryption import Encryption, EncryptionKeyError, load_encryption
from payintent.runtime.settings import Settings
from payintent.service import open_service
from tests.support.world import World

PEPPER, OLD, NEW = bytes(32), b"o" * 32, b"n" * 32


def _encryption(ring: Mapping[str, bytes], pepper: bytes = PEPPER) -> Encryption:
    return Encryption(pepper, ring)


def _encode(key: bytes) -> str:
    return base64.b64encode(key).decode()


def test_a_secret_can_be_decrypted_only_in_its_own_context() -> None:
    secrets = _encryption({"old": OLD})
    sealed = secrets.encrypt(b"hidden", "callback_secret:1")
    assert b"hidden" not in sealed
    assert secrets.decrypt(sealed, "callback_secret:1") == b"hidden"
    with pytest.raises(EncryptionKeyError, match="another row"):
        secrets.decrypt(sealed, "callback_secret:2")


def test_every_encryption_uses_a_different_nonce() -> None:
    secrets = _encryption({"old": OLD})
    nonces = {secrets.encrypt(b"hidden", "place")[4:16] for _ in range(100)}
    assert len(nonces) == 100


def test_a_different_key_with_the_same_name_cannot_decrypt_a_secret() -> None:
    sealed = _encryption({"old": OLD}).encrypt(b"hidden", "place")
    with pytest.raises(EncryptionKeyError, match="another key"):
        _encryption({"old": NEW}).decrypt(sealed, "place")


def test_a_secret_with_a_changed_byte_cannot_be_decrypted() -> None:
    secrets = _encryption({"old": OLD})
    sealed = secrets.encrypt(b"hidden", "place")
    for position in range(len("old") + 1, len(sealed)):
        modified = sealed[:position] + bytes([sealed[position] ^ 1]) + sealed[position + 1 :]
        with pytest.raises(EncryptionKeyError):
            secrets.decrypt(modified, "place")


def test_a_truncated_secret_cannot_be_decrypted() -> None:
    secrets = _encryption({"old": OLD})
    sealed = secrets.encrypt(b"hidden", "place")
    for length in range(len(sealed)):
        with pytest.raises(EncryptionKeyError):
            secrets.decrypt(sealed[:length], "place")


@pytest.mark.parametrize(
    "stored", ["sealed:", "sealed:old::", "sealed:old::AAAA", f"sealed:{'k' * 300}::AAAA"]
)
def test_a_truncated_or_overlong_value_cannot_be_unsealed(stored: str) -> None:
    sealing = PayerSealing(_encryption({"old": OLD}), is_on=True)
    with pytest.raises(EncryptionKeyError):
        sealing.unseal_email(UUID(int=1), stored)


def test_a_rotated_key_ring_encrypts_with_the_new_key_and_decrypts_with_both() -> None:
    sealed = _encryption({"old": OLD}).encrypt(b"hidden", "place")
    rotated = _encryption({"new": NEW, "old": OLD})
    assert rotated.decrypt(sealed, "place") == b"hidden"
    fresh = rotated.encrypt(b"hidden", "place")
    assert _encryption({"new": NEW}).decrypt(fresh, "place") == b"hidden"
    with pytest.raises(EncryptionKeyError, match="no key named 'new'"):
        _encryption({"old": OLD}).decrypt(fresh, "place")


def test_fingerprints_identify_keys_without_revealing_them() -> None:
    encryption = _encryption({"new": NEW, "old": OLD})
    assert (
        encryption.fingerprints["old"]
        == _encryption({"old": OLD}).fingerprints["old"]
        != encryption.fingerprints["new"]
    )
    assert _encryption({"old": OLD}, pepper=NEW).pepper_fingerprint != encryption.pepper_fingerprint
    assert all(
        _encode(OLD) not in fingerprint and OLD.hex() not in fingerprint
        for fingerprint in encryption.fingerprints.values()
    )


def test_a_digest_depends_on_the_pepper() -> None:
    assert len(_encryption({"old": OLD}).digest("sk")) == 32
    assert _encryption({"old": OLD}).digest("sk") != _encryption({"old": OLD}, pepper=NEW).digest(
        "sk"
    )
    assert _encryption({"old": OLD}).digest("sk") != _encryption({"old": OLD}).digest("sl")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"pepper": "no base64!"}, "PEPPER"),
        ({"pepper": _encode(b"short")}, "32 bytes"),
        ({"pepper": ""}, "32 bytes"),
        ({"keyring": f"a:{_encode(b'short')}"}, "key 'a'"),
        ({"keyring": f"a:{_encode(OLD)},b"}, "key 'b'"),
        ({"keyring": ""}, "key ''"),
        ({"keyring": f"a:{_encode(OLD)},a:{_encode(NEW)}"}, "key 'a' .* unique name"),
        ({"keyring": f":{_encode(OLD)}"}, "key '' .* unique name"),
        ({"keyring": f"{'a' * 33}:{_encode(OLD)}"}, "1 to 32 letters"),
    ],
)
def test_invalid_settings_are_rejected_by_name_without_their_value(
    settings: Settings, changes: dict[str, str], problem: str
) -> None:
    with pytest.raises(EncryptionKeyError, match=problem) as error:
        load_encryption(_with_secrets(settings, **changes))
    assert not any(text and text in str(error.value) for text in changes.values())


def test_the_first_key_of_the_key_ring_is_the_current_key(settings: Settings) -> None:
    ring = f"new:{_encode(NEW)}, old:{_encode(OLD)}"
    secrets = load_encryption(_with_secrets(settings, keyring=ring, pepper=_encode(PEPPER)))
    assert list(secrets.fingerprints) == ["new", "old"]
    assert secrets.current_key_name == "new"
    assert secrets.encrypt(b"hidden", "place")[1:4] == b"new"


@pytest.mark.parametrize("changes", [{"pepper": _encode(NEW)}, {"keyring": f"test:{_encode(NEW)}"}])
async def test_a_process_with_the_wrong_secrets_does_not_start(
    world: World, settings: Settings, changes: dict[str, str]
) -> None:
    with pytest.raises(EncryptionKeyError, match="does not belong to"):
        await open_service(_with_secrets(settings, **changes), {})


async def test_a_process_with_a_rotated_key_ring_starts_and_decrypts_older_secrets(
    world: World, settings: Settings
) -> None:
    old = settings.keyring.get_secret_value()
    service = await open_service(_with_secrets(settings, keyring=f"new:{_encode(NEW)},{old}"), {})
    account = await service.accounts.get(world.account_id)
    assert account is not None
    assert account.credentials == {"signing_secret": "fake-signing-secret"}
    assert "fake-signing-secret" not in repr(account)
    await service.close()


def _with_secrets(settings: Settings, **changes: Any) -> Settings:
    return settings.model_copy(update={name: SecretStr(text) for name, text in changes.items()})
