import base64
import hashlib
import hmac
import json
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import NameOID
from joserfc import jwe, jws
from joserfc.jwk import RSAKey

from payintent.gateways.twoc2p.messages import InvalidTokenError, sign_jwt, verify_jwt
from payintent.gateways.twoc2p.sealed import TwoC2pKeys, encrypt_and_sign, verify_and_decrypt
from payintent_sandbox.emulators.twoc2p import envelope
from payintent_sandbox.emulators.twoc2p.keys import read_private, read_public
from tests.sandbox.twoc2p.emulator_setup import MERCHANT, SECRET, b64, jwt, pair

#: A published token that is signed with the secret in `emulator_setup.py`, and its claims.
PUBLISHED = (
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9."
    "eyJtZXJjaGFudElEIjoiSlQwMSIsImludm9pY2VObyI6IjE1MjM5NTM2NjEiLCJkZXNjcmlwdGlvbiI6Iml0ZW0gMSIs"
    "ImFtb3VudCI6MTAwMCwiY3VycmVuY3lDb2RlIjoiU0dEIn0."
    "ElmhOULUdK63FnriSs2XyhH1LxULoTVIopTUuQ77DvA"
)
CLAIMS = {
    "merchantID": "JT01",
    "invoiceNo": "1523953661",
    "description": "item 1",
    "amount": 1000,
    "currencyCode": "SGD",
}
#: A published inquiry, signed with the secret of the older examples.
PUBLISHED_INQUIRY = (
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9."
    "eyJwYXltZW50VG9rZW4iOiIyNTRiNzdhNS01NTY4LTQ5Y2EtOWUwZS0yZjhkMjhiZTk1ZTciLCJpbnZvaWNlTm8iOiIy"
    "NTRiNzdhYWJjIiwibG9jYWxlIjoiZW4ifQ."
    "r8EEFRXlNcLi566BrzroOh6qbjGSyWqJ9ZARSR5XwQ4"
)
PUBLISHED_SECRET = "7jYcp4FxFdf0"
#: The encoded headers with which every published encrypted request starts.
PUBLISHED_SEAL = (
    "eyJhbGciOiJQUzI1NiIsInR5cCI6IkpXVCJ9."
    "ZXlKaGJHY2lPaUpTVTBFdFQwRkZVQ0lzSW1WdVl5STZJa0V5TlRaSFEwMGlmUS"
)
ELLIPTIC = ec.generate_private_key(ec.SECP256R1())
CONTENT = "<PaymentProcessRequest><invoiceNo>ก1</invoiceNo></PaymentProcessRequest>".encode()
OURS = TwoC2pKeys(pair(MERCHANT)[0], pair("gateway")[1])
THEIRS = read_private(pair("gateway")[0])
MERCHANT_KEY = read_public(pair(MERCHANT)[1])
SEALING = ["RSA-OAEP", "A256GCM"]


def test_the_published_vector_is_verified_and_reproduced() -> None:
    content = verify_jwt(PUBLISHED, SECRET)
    assert json.loads(content) == CLAIMS
    assert sign_jwt(content, SECRET) == PUBLISHED
    assert envelope.verify(PUBLISHED, SECRET) == content
    assert envelope.sign(content, SECRET) == PUBLISHED


def test_the_published_inquiry_is_verified_and_reproduced() -> None:
    content = verify_jwt(PUBLISHED_INQUIRY, PUBLISHED_SECRET)
    assert json.loads(content)["invoiceNo"] == "254b77aabc"
    assert sign_jwt(content, PUBLISHED_SECRET) == PUBLISHED_INQUIRY


def test_the_adapter_and_the_emulator_verify_each_others_signatures() -> None:
    assert envelope.verify(sign_jwt(CONTENT, SECRET), SECRET) == CONTENT
    assert verify_jwt(envelope.sign(CONTENT, SECRET), SECRET) == CONTENT


def test_a_noncanonical_signature_encoding_is_refused() -> None:
    last = PUBLISHED[-1]  # its two lowest bits are unused
    for character in set("ABCD") - {last}:
        with pytest.raises(InvalidTokenError):
            verify_jwt(PUBLISHED[:-1] + character, SECRET)


@pytest.mark.parametrize("secret", ["", "x", SECRET.lower(), SECRET[:-1], "é"])
def test_a_wrong_or_empty_secret_does_not_verify_a_token(secret: str) -> None:
    with pytest.raises(InvalidTokenError):
        verify_jwt(PUBLISHED, secret)
    with pytest.raises(InvalidTokenError):
        verify_jwt(jwt(b"{}", ""), "")


@pytest.mark.parametrize("alg", ["none", "None", "HS512", "RS256", "hs256", "", None, 1])
def test_another_algorithm_is_refused_even_if_the_signature_is_valid(alg: object) -> None:
    with pytest.raises(InvalidTokenError):
        verify_jwt(jwt(b"{}", SECRET, alg=alg), SECRET)
    with pytest.raises(InvalidTokenError):
        verify_jwt(jwt(b"{}", SECRET, alg=alg).rpartition(".")[0] + ".", SECRET)


def test_an_unsupported_critical_header_is_refused() -> None:
    with pytest.raises(InvalidTokenError, match="algorithm"):
        verify_jwt(jwt(b"{}", SECRET, crit=["b64"], b64=False), SECRET)


@pytest.mark.parametrize("token", ["", ".", "..", "a.b", "é.é.é", "\ud800.a.b", "a" * 100_000])
def test_a_malformed_token_is_refused(token: str) -> None:
    with pytest.raises(InvalidTokenError):
        verify_jwt(token, SECRET)


def test_a_signed_token_with_an_invalid_base64url_payload_is_refused() -> None:
    signed = f"{b64(json.dumps({'alg': 'HS256'}).encode())}.a+/="
    mac = hmac.new(SECRET.encode(), signed.encode(), hashlib.sha256).digest()
    with pytest.raises(InvalidTokenError, match="base64url"):
        verify_jwt(f"{signed}.{b64(mac)}", SECRET)


def test_an_encrypted_request_has_the_published_headers_and_can_be_decrypted() -> None:
    token = encrypt_and_sign(CONTENT, OURS)
    assert token.startswith(PUBLISHED_SEAL)
    assert envelope.unseal(token, MERCHANT_KEY, THEIRS) == CONTENT
    assert CONTENT.decode() not in token
    assert encrypt_and_sign(CONTENT, OURS) != token


def test_an_encrypted_response_of_the_gateway_is_decrypted() -> None:
    token = envelope.seal(CONTENT, MERCHANT_KEY, THEIRS)
    assert token.startswith(PUBLISHED_SEAL)
    assert verify_and_decrypt(token, OURS) == CONTENT


def certificate() -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "2C2P")])
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(THEIRS.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .sign(THEIRS, hashes.SHA256())
    )


DER, PEM, SPKI = Encoding.DER, Encoding.PEM, PublicFormat.SubjectPublicKeyInfo


def to_base64(der: bytes) -> str:
    return base64.b64encode(der).decode()


@pytest.mark.parametrize(
    "gateway_key",
    [
        certificate().public_bytes(PEM).decode(),
        to_base64(certificate().public_bytes(DER)),
        base64.encodebytes(certificate().public_bytes(DER)).decode(),
        to_base64(THEIRS.public_key().public_bytes(DER, SPKI)),
        to_base64(THEIRS.public_key().public_bytes(DER, PublicFormat.PKCS1)),
        THEIRS.public_key().public_bytes(PEM, PublicFormat.PKCS1).decode(),
    ],
    ids=range(6),
)
@pytest.mark.parametrize(
    "private_key",
    [
        OURS.private_key,
        f"\n {OURS.private_key}",
        *(
            to_base64(read_private(OURS.private_key).private_bytes(DER, form, NoEncryption()))
            for form in (PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL)
        ),
    ],
    ids=range(4),
)
def test_keys_can_be_pem_or_der_and_the_gateway_key_can_be_a_certificate(
    private_key: str, gateway_key: str
) -> None:
    keys = TwoC2pKeys(private_key, gateway_key)
    assert verify_and_decrypt(envelope.seal(CONTENT, MERCHANT_KEY, THEIRS), keys) == CONTENT
    assert envelope.unseal(encrypt_and_sign(CONTENT, keys), MERCHANT_KEY, THEIRS) == CONTENT


def test_a_response_signed_by_or_encrypted_for_a_stranger_is_refused() -> None:
    stranger = read_private(pair("stranger")[0])
    with pytest.raises(InvalidTokenError):
        verify_and_decrypt(envelope.seal(CONTENT, MERCHANT_KEY, stranger), OURS)
    with pytest.raises(InvalidTokenError):
        verify_and_decrypt(envelope.seal(CONTENT, stranger.public_key(), THEIRS), OURS)


def test_other_algorithms_are_refused_even_if_both_keys_are_right() -> None:
    gateway, merchant = RSAKey.import_key(pair("gateway")[0]), RSAKey.import_key(pair(MERCHANT)[1])

    def encrypt(signing: str, wrapping: str, encryption: str, **more: str) -> str:
        header = {"alg": wrapping, "enc": encryption, **more}
        inner = jwe.encrypt_compact(
            header, CONTENT, merchant, [wrapping, encryption, *more.values()]
        )
        return jws.serialize_compact({"alg": signing}, inner, gateway, [signing])

    assert verify_and_decrypt(encrypt("PS256", *SEALING), OURS) == CONTENT
    for token in (
        encrypt("RS256", *SEALING),
        encrypt("PS512", *SEALING),
        encrypt("PS256", "RSA-OAEP-256", "A256GCM"),
        encrypt("PS256", "RSA-OAEP", "A128GCM"),
        encrypt("PS256", *SEALING, zip="DEF"),  # compressed content could be huge
    ):
        with pytest.raises(InvalidTokenError):
            verify_and_decrypt(token, OURS)


def test_a_token_signed_with_the_public_key_as_secret_is_refused() -> None:
    with pytest.raises(InvalidTokenError):
        verify_and_decrypt(jwt(CONTENT, pair("gateway")[1]), OURS)


@pytest.mark.parametrize("position", range(0, 400, 29))
def test_an_encrypted_response_with_a_changed_character_is_refused(position: int) -> None:
    token = envelope.seal(CONTENT, MERCHANT_KEY, THEIRS)
    changed = "A" if token[position] != "A" else "B"
    with pytest.raises(InvalidTokenError):
        verify_and_decrypt(f"{token[:position]}{changed}{token[position + 1 :]}", OURS)


@pytest.mark.parametrize("token", ["", "x", "a.b.c", "é.é.é", "a.b.c.d.e", "x" * 200_000])
def test_a_malformed_encrypted_response_is_refused(token: str) -> None:
    with pytest.raises(InvalidTokenError):
        verify_and_decrypt(token, OURS)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "nonsense",
        "-----BEGIN PRIVATE KEY-----\nAAAA",
        to_base64(b"DER it is not"),
        ELLIPTIC.private_bytes(PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
        to_base64(ELLIPTIC.public_key().public_bytes(DER, SPKI)),
        read_private(OURS.private_key)
        .private_bytes(PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"pass"))
        .decode(),
    ],
    ids=range(7),
)
def test_unreadable_keys_raise_a_value_error(key: str) -> None:
    with pytest.raises(ValueError):
        encrypt_and_sign(CONTENT, TwoC2pKeys(key, OURS.gateway_key))
    with pytest.raises(ValueError):
        encrypt_and_sign(CONTENT, TwoC2pKeys(OURS.private_key, key))


def test_a_public_key_cannot_sign() -> None:
    with pytest.raises(ValueError, match="private key"):
        encrypt_and_sign(CONTENT, TwoC2pKeys(pair(MERCHANT)[1], OURS.gateway_key))


def test_the_repr_of_a_key_pair_hides_the_private_key() -> None:
    assert "PRIVATE" not in repr(OURS)
