"""Sign GET requests to an S3-compatible store with AWS Signature Version 4.

Source: "Authenticating Requests (AWS Signature Version 4)", Amazon S3 API Reference.
"""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import quote

_EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
_ALGORITHM = "AWS4-HMAC-SHA256"


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Credentials:
    """A key that may list and read the bucket."""

    region: str
    key_id: str
    secret_key: str = field(repr=False)


def canonical_query(query: Mapping[str, str]) -> str:
    """Encode a query in the canonical form, which must be used both to sign and to send it."""
    pairs = sorted((quote(name, safe=""), quote(value, safe="")) for name, value in query.items())
    return "&".join(f"{name}={value}" for name, value in pairs)


def sign_get(
    credentials: S3Credentials,
    *,
    host: str,
    path: str,
    query: Mapping[str, str],
    headers: Mapping[str, str],
    at: datetime,
) -> dict[str, str]:
    """Return `headers` plus the headers that sign the request.

    `host` includes the port unless it is the scheme's default. `path` is percent-encoded, as it is
    sent. `at` is in UTC.
    """
    time = at.strftime("%Y%m%dT%H%M%SZ")
    dated = {"x-amz-content-sha256": _EMPTY_SHA256, "x-amz-date": time}
    signed = {name.lower(): value.strip() for name, value in headers.items()}
    signed |= {"host": host} | dated
    names = ";".join(sorted(signed))
    lines = "".join(f"{name}:{signed[name]}\n" for name in sorted(signed))
    request = f"GET\n{path}\n{canonical_query(query)}\n{lines}\n{names}\n{_EMPTY_SHA256}"
    scope = f"{time[:8]}/{credentials.region}/s3/aws4_request"
    digest = hashlib.sha256(request.encode()).hexdigest()
    key = f"AWS4{credentials.secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(
        key, f"{_ALGORITHM}\n{time}\n{scope}\n{digest}".encode(), "sha256"
    ).hex()
    authorization = (
        f"{_ALGORITHM} Credential={credentials.key_id}/{scope},"
        f"SignedHeaders={names},Signature={signature}"
    )
    return {**headers, **dated, "Authorization": authorization}
