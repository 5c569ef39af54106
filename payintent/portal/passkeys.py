"""Passkey (WebAuthn) registration and sign-in, verified by the `fido2` library."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

from fido2 import cbor, webauthn
from fido2.cose import CoseKey
from fido2.server import Fido2Server
from fido2.utils import websafe_encode

from payintent.core.addresses import parse_web_origin
from payintent.members.sessions_store import MemberSession
from payintent.members.store import Passkey, PasskeyUse
from payintent.portal.challenges import PasskeyError

T = TypeVar("T")
#: COSE identifiers of ES256, EdDSA and RS256, the algorithms in common use.
_ALGORITHMS = (-7, -8, -257)
_ALGORITHM_LABEL = 3  # label of the algorithm in a COSE key
_NAME = "Merchant portal"
#: Returns the creation time of a challenge; None if it is forged or has expired.
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
    """Verifies passkeys that browsers have bound to the portal's host name."""

    def __init__(self, portal_address: str) -> None:
        self._origin = parse_web_origin(portal_address)
        host = urlsplit(portal_address).hostname or ""
        # fido2 is only partly typed.
        self._server: Any = Fido2Server(
            webauthn.PublicKeyCredentialRpEntity(name=_NAME, id=host),
            verify_origin=lambda origin: origin == self._origin,
        )
        self._server.allowed_algorithms = [
            parameters
            for parameters in self._server.allowed_algorithms
            if parameters.alg in _ALGORITHMS
        ]

    def make_registration_options(
        self, session: MemberSession, passkeys: list[Passkey], challenge: bytes
    ) -> dict[str, Any]:
        options, _ = self._server.register_begin(
            webauthn.PublicKeyCredentialUserEntity(
                id=session.member_id.bytes,
                name=session.email,
                display_name=f"{session.email} · {session.merchant_name}",
            ),
            [_make_descriptor(passkey) for passkey in passkeys],
            resident_key_requirement=webauthn.ResidentKeyRequirement.REQUIRED,
            user_verification=webauthn.UserVerificationRequirement.REQUIRED,
            challenge=challenge,
        )
        return dict(options.public_key)

    def make_sign_in_options(self, challenge: bytes) -> dict[str, Any]:
        """Return the browser's sign-in options, which do not identify any member or passkey."""
        options, _ = self._server.authenticate_begin(
            user_verification=webauthn.UserVerificationRequirement.REQUIRED, challenge=challenge
        )
        return dict(options.public_key)

    def check_registration(self, text: str, read_challenge: ReadChallenge) -> NewPasskey:
        """Verify the browser's response for a new passkey; raise `PasskeyError` if invalid."""
        fields = _parse_fields(text)
        response = _parse(lambda: webauthn.RegistrationResponse.from_dict(fields))
        created_at = _check_client_data(read_challenge, response.response.client_data)
        authenticator_data: webauthn.AuthenticatorData = _parse(
            lambda: self._server.register_complete(_make_server_state(response), fields)
        )
        credential = authenticator_data.credential_data
        key = cast("dict[int, Any]", credential.public_key) if credential else {}
        if credential is None or key.get(_ALGORITHM_LABEL) not in _ALGORITHMS:
            raise PasskeyError("unsupported algorithm")
        use = PasskeyUse(
            credential_id=credential.credential_id,
            sign_count=authenticator_data.counter,
            challenged_at=created_at,
        )
        return NewPasskey(use, cbor.encode(key))

    def read_assertion(self, text: str) -> Assertion:
        """Parse a sign-in response without verifying it, so that its passkey can be looked up.

        Raises `PasskeyError`.
        """
        fields = _parse_fields(text)
        response = _parse(lambda: webauthn.AuthenticationResponse.from_dict(fields))
        return Assertion(response.raw_id, fields)

    def check_assertion(
        self, assertion: Assertion, passkey: Passkey, read_challenge: ReadChallenge
    ) -> PasskeyUse:
        """Verify a sign-in with a stored passkey; raise `PasskeyError` if invalid."""
        response = _parse(lambda: webauthn.AuthenticationResponse.from_dict(assertion.fields))
        created_at = _check_client_data(read_challenge, response.response.client_data)
        user_handle = response.response.user_handle
        if user_handle is not None and user_handle != passkey.member_id.bytes:
            raise PasskeyError("the passkey belongs to another member")
        _parse(
            lambda: self._server.authenticate_complete(
                _make_server_state(response), [_make_credential(passkey)], assertion.fields
            )
        )
        return PasskeyUse(
            credential_id=passkey.credential_id,
            sign_count=response.response.authenticator_data.counter,
            challenged_at=created_at,
        )


def _make_server_state(
    response: webauthn.RegistrationResponse | webauthn.AuthenticationResponse,
) -> dict[str, Any]:
    challenge = response.response.client_data.challenge
    return {
        "challenge": websafe_encode(challenge),
        "user_verification": webauthn.UserVerificationRequirement.REQUIRED,
    }


def _make_credential(passkey: Passkey) -> webauthn.AttestedCredentialData:
    cose_key: Any = cast("Any", cbor).decode(passkey.public_key)
    return webauthn.AttestedCredentialData.create(
        webauthn.Aaguid.NONE, passkey.credential_id, CoseKey.parse(cose_key)
    )


def _make_descriptor(passkey: Passkey) -> webauthn.PublicKeyCredentialDescriptor:
    return webauthn.PublicKeyCredentialDescriptor(
        type=webauthn.PublicKeyCredentialType.PUBLIC_KEY, id=passkey.credential_id
    )


def _check_client_data(
    read_challenge: ReadChallenge, client_data: webauthn.CollectedClientData
) -> datetime:
    if client_data.cross_origin:
        raise PasskeyError("the request came from a frame on another site")
    created_at = read_challenge(client_data.challenge)
    if created_at is None:
        raise PasskeyError("unknown or expired challenge")
    return created_at


def _parse_fields(text: str) -> Mapping[str, Any]:
    fields = _parse(lambda: json.loads(text))
    if not isinstance(fields, dict):
        raise PasskeyError("not a JSON object")
    return cast("dict[str, Any]", fields)


def _parse(parse: Callable[[], T]) -> T:
    """Call `parse`; raise `PasskeyError` on any error."""
    try:
        return parse()
    except Exception as error:  # fido2 does not document its errors for malicious input
        raise PasskeyError(str(error)[:100]) from error
