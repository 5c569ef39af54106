"""Passkeys (WebAuthn), checked by the library `fido2`: registered, and used to sign in."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

from fido2 import cbor
from fido2.cose import CoseKey
from fido2.server import Fido2Server
from fido2.utils import websafe_encode
from fido2.webauthn import (
    Aaguid,
    AttestedCredentialData,
    AuthenticationResponse,
    AuthenticatorData,
    CollectedClientData,
    PublicKeyCredentialDescriptor,
    PublicKeyCredentialRpEntity,
    PublicKeyCredentialType,
    PublicKeyCredentialUserEntity,
    RegistrationResponse,
    ResidentKeyRequirement,
    UserVerificationRequirement,
)

from payintent.domain.web_origin import web_origin
from payintent.portal.passkey_verifier import PasskeyError
from payintent.storage.member_sessions import MemberSession
from payintent.storage.members import Passkey, PasskeyUse

T = TypeVar("T")
#: ES256, EdDSA and RS256 by their numbers in COSE: what platforms and keys make today.
_ALGORITHMS = (-7, -8, -257)
_ALG = 3  # the member of a COSE key that names its algorithm
_NAME = "Merchant portal"
#: Tells when a challenge was made; None where it is not ours, or has lapsed.
ReadChallenge = Callable[[bytes], datetime | None]


@dataclass(frozen=True, slots=True)
class NewPasskey:
    use: PasskeyUse
    public_key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Assertion:
    credential_id: bytes
    fields: Mapping[str, Any]


class PasskeyVerifier:
    """Checks passkeys of one origin; browsers bind them to its host."""

    def __init__(self, portal_address: str) -> None:
        self._origin = web_origin(portal_address)
        host = urlsplit(portal_address).hostname or ""
        # The library's own types are partly unknown.
        self._server: Any = Fido2Server(
            PublicKeyCredentialRpEntity(name=_NAME, id=host),
            verify_origin=lambda origin: origin == self._origin,
        )
        self._server.allowed_algorithms = [
            parameters
            for parameters in self._server.allowed_algorithms
            if parameters.alg in _ALGORITHMS
        ]

    def registration_options(
        self, session: MemberSession, present: list[Passkey], challenge: bytes
    ) -> dict[str, Any]:
        options, _ = self._server.register_begin(
            PublicKeyCredentialUserEntity(
                id=session.member_id.bytes,
                name=session.email,
                display_name=f"{session.email} · {session.merchant_name}",
            ),
            [_descriptor(passkey) for passkey in present],
            resident_key_requirement=ResidentKeyRequirement.REQUIRED,
            user_verification=UserVerificationRequirement.REQUIRED,
            challenge=challenge,
        )
        return dict(options.public_key)

    def sign_in_options(self, challenge: bytes) -> dict[str, Any]:
        """Return what a browser needs to use a passkey; it names no person and no passkey."""
        options, _ = self._server.authenticate_begin(
            user_verification=UserVerificationRequirement.REQUIRED, challenge=challenge
        )
        return dict(options.public_key)

    def check_registration(self, text: str, read: ReadChallenge) -> NewPasskey:
        """Check what a browser answers about a new passkey (`PasskeyError`)."""
        fields = _read_fields(text)
        answer = _parsed(lambda: RegistrationResponse.from_dict(fields))
        made = _made_at(read, answer.response.client_data)
        data: AuthenticatorData = _parsed(
            lambda: self._server.register_complete(_state(answer), fields)
        )
        credential = data.credential_data
        key = cast("dict[int, Any]", credential.public_key) if credential else {}
        if credential is None or key.get(_ALG) not in _ALGORITHMS:
            raise PasskeyError("another algorithm")
        use = PasskeyUse(
            credential_id=credential.credential_id, sign_count=data.counter, challenged_at=made
        )
        return NewPasskey(use, cbor.encode(key))

    def read_assertion(self, text: str) -> Assertion:
        """Read which passkey a browser names (`PasskeyError`); nothing is checked yet."""
        fields = _read_fields(text)
        answer = _parsed(lambda: AuthenticationResponse.from_dict(fields))
        return Assertion(answer.raw_id, fields)

    def check_assertion(
        self, assertion: Assertion, passkey: Passkey, read: ReadChallenge
    ) -> PasskeyUse:
        """Check a sign-in by a stored passkey (`PasskeyError`)."""
        answer = _parsed(lambda: AuthenticationResponse.from_dict(assertion.fields))
        made = _made_at(read, answer.response.client_data)
        handle = answer.response.user_handle
        if handle is not None and handle != passkey.member_id.bytes:
            raise PasskeyError("another member")
        _parsed(
            lambda: self._server.authenticate_complete(
                _state(answer), [_credential(passkey)], assertion.fields
            )
        )
        return PasskeyUse(
            credential_id=passkey.credential_id,
            sign_count=answer.response.authenticator_data.counter,
            challenged_at=made,
        )


def _state(answer: RegistrationResponse | AuthenticationResponse) -> dict[str, Any]:
    challenge = answer.response.client_data.challenge
    return {
        "challenge": websafe_encode(challenge),
        "user_verification": UserVerificationRequirement.REQUIRED,
    }


def _credential(passkey: Passkey) -> AttestedCredentialData:
    stored: Any = cast("Any", cbor).decode(passkey.public_key)
    return AttestedCredentialData.create(Aaguid.NONE, passkey.credential_id, CoseKey.parse(stored))


def _descriptor(passkey: Passkey) -> PublicKeyCredentialDescriptor:
    return PublicKeyCredentialDescriptor(
        type=PublicKeyCredentialType.PUBLIC_KEY, id=passkey.credential_id
    )


def _made_at(read: ReadChallenge, client: CollectedClientData) -> datetime:
    if client.cross_origin:
        raise PasskeyError("a frame of another site")
    made = read(client.challenge)
    if made is None:
        raise PasskeyError("another challenge, or an old one")
    return made


def _read_fields(text: str) -> Mapping[str, Any]:
    fields = _parsed(lambda: json.loads(text))
    if not isinstance(fields, dict):
        raise PasskeyError("no object")
    return cast("dict[str, Any]", fields)


def _parsed(read: Callable[[], T]) -> T:
    try:
        return read()
    except Exception as error:  # what the library raises for hostile bytes is not documented
        raise PasskeyError(str(error)[:100]) from error
