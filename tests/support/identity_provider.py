"""An OpenID Connect identity provider with real keys, which can also return false data.

It signs with the primitives in `cryptography`, while the service verifies with a library.
"""

import base64
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from aiohttp import BasicAuth, web
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.support.http_server import clean_up

CLIENT_ID, CLIENT_SECRET = "payintent-console", "s3cret/with+signs:and%more"
Claims = dict[str, Any]


@dataclass
class IdentityProvider:
    """Signs in `person` on every request. Its claims can be changed before they are signed."""

    issuer: str
    person: Claims = field(
        default_factory=lambda: {
            "sub": "u-1",
            "email": "ada@example.com",
            "email_verified": True,
            "groups": ["staff", "payments-admins"],
        }
    )
    key: int = 0  # the index of the signing key; the other keys are not published
    algorithm: str = "RS256"
    bits: int = 2048  # of the RSA key
    zeros: int = 0  # bytes before its modulus
    jwk: Claims = field(default_factory=dict)  # overrides fields of the published RSA key
    lie: Callable[[Claims], None] = lambda _: None
    head: Claims = field(default_factory=dict)
    answer: Claims = field(default_factory=dict)  # overrides the query of the redirect back
    metadata: Claims = field(default_factory=dict)  # overrides fields of its metadata
    accepts_codes_twice: bool = False
    asked: list[str] = field(default_factory=list)
    codes: dict[str, Claims] = field(default_factory=dict)

    async def get_discovery(self, _: web.Request) -> web.Response:
        self.asked.append("discovery")
        document = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize?tenant=1",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
        }
        return web.json_response(document | self.metadata)

    async def get_keys(self, _: web.Request) -> web.Response:
        self.asked.append("keys")
        return web.json_response({"keys": [self._published(), _ec_jwk()]})

    def _published(self) -> Claims:
        """Return the RSA key. With `zeros`, its modulus has leading zero bytes."""
        jwk = _rsa_jwk(self.key, self.bits)
        if self.zeros:
            modulus = base64.urlsafe_b64decode(jwk["n"] + "==")
            jwk["n"] = _text(bytes(self.zeros) + modulus)
        return jwk | self.jwk

    async def get_authorize(self, request: web.Request) -> web.Response:
        parameters = dict(request.query)
        assert (parameters["tenant"], parameters["client_id"]) == ("1", CLIENT_ID)
        assert (parameters["response_type"], parameters["code_challenge_method"]) == (
            "code",
            "S256",
        )
        assert "openid" in parameters["scope"].split()
        code = secrets.token_urlsafe(16)
        self.codes[code] = parameters
        back = {"code": code, "state": parameters["state"], "iss": self.issuer} | self.answer
        raise web.HTTPSeeOther(f"{parameters['redirect_uri']}?{urlencode(back)}")

    async def post_token(self, request: web.Request) -> web.Response:
        self.asked.append("token")
        client = BasicAuth.decode(request.headers["Authorization"])
        decoded = parse_qs(f"id={client.login}&secret={client.password}")
        response = await request.post()
        parameters = self.codes.get(str(response["code"]))
        if decoded != {"id": [CLIENT_ID], "secret": [CLIENT_SECRET]}:
            return web.json_response({"error": "invalid_client"}, status=401)
        challenge = _text(hashlib.sha256(str(response["code_verifier"]).encode()).digest())
        if (
            parameters is None
            or response["redirect_uri"] != parameters["redirect_uri"]
            or challenge != parameters["code_challenge"]
        ):
            return web.json_response({"error": "invalid_grant"}, status=400)
        if not self.accepts_codes_twice:
            del self.codes[str(response["code"])]
        return web.json_response(
            {"id_token": self.token(parameters["nonce"]), "token_type": "Bearer"}
        )

    def token(self, nonce: str) -> str:
        """Return an ID token of the person, with any configured false claims."""
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": CLIENT_ID, "iat": now, "exp": now + 300}
        claims |= self.person | {"nonce": nonce}
        self.lie(claims)
        kid = "ec" if self.algorithm == "ES256" else str(self.key)
        head = {"alg": self.algorithm, "kid": kid, "typ": "JWT"} | self.head
        head = {name: value for name, value in head.items() if value is not None}
        signed = f"{_json(head)}.{_json(claims)}"
        return f"{signed}.{_text(self._sign(signed.encode()))}"

    def _sign(self, content: bytes) -> bytes:
        return _sign(self.algorithm, _rsa(self.key, self.bits), content)


@asynccontextmanager
async def identity_provider(host: str = "127.0.0.1") -> AsyncIterator[IdentityProvider]:
    """Serve a provider on `localhost`, which for browsers is a different site than 127.0.0.1."""
    provider = IdentityProvider("")
    app = web.Application()
    app.router.add_get("/.well-known/openid-configuration", provider.get_discovery)
    app.router.add_get("/keys", provider.get_keys)
    app.router.add_get("/authorize", provider.get_authorize)
    app.router.add_post("/token", provider.post_token)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    provider.issuer = f"http://{host}:{runner.addresses[0][1]}"
    try:
        yield provider
    finally:
        await clean_up(runner)


def query_of(url: str) -> dict[str, str]:
    """Return the query of a URL, with each name once."""
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}


@cache
def _rsa(number: int, bits: int) -> rsa.RSAPrivateKey:
    del number
    return rsa.generate_private_key(65537, bits)


@cache
def _ec() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _rsa_jwk(number: int, bits: int) -> Claims:
    numbers = _rsa(number, bits).public_key().public_numbers()
    modulus = numbers.n.to_bytes((bits + 7) // 8, "big")
    exponent = numbers.e.to_bytes(3, "big")
    return {"kty": "RSA", "kid": str(number), "n": _text(modulus), "e": _text(exponent)}


def _ec_jwk() -> Claims:
    numbers = _ec().public_key().public_numbers()
    x, y = (_text(item.to_bytes(32, "big")) for item in (numbers.x, numbers.y))
    return {"kty": "EC", "crv": "P-256", "use": "sig", "kid": "ec", "x": x, "y": y}


def _sign(algorithm: str, key: rsa.RSAPrivateKey, content: bytes) -> bytes:
    if algorithm == "RS256":
        return key.sign(content, padding.PKCS1v15(), hashes.SHA256())
    if algorithm == "ES256":
        r, s = decode_dss_signature(_ec().sign(content, ec.ECDSA(hashes.SHA256())))
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")
    if algorithm == "HS256":  # with public data as the key
        pem = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        return hmac.digest(pem, content, "sha256")
    return b""


def _json(value: Claims) -> str:
    return _text(json.dumps(value).encode())


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
