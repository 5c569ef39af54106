"""ECPay's CheckMacValue: a hash of all fields of a form with two secrets."""

import hashlib
import hmac
import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, quote_plus

from payintent.domain.gateway import GatewayAccount

CHECK = "CheckMacValue"
FIELDS_MAX = 200
_EMBEDDED_FIELD = re.compile(r"&[^&]*=")  # in a value
_NAME = re.compile(r"[0-9A-Za-z_]{1,50}")


def check_mac_value(fields: Mapping[str, str], hash_key: str, hash_iv: str) -> str:
    ordered = sorted((name for name in fields if name != CHECK), key=str.lower)
    content = "&".join(f"{name}={fields[name]}" for name in ordered)
    encoded = _encoded(f"HashKey={hash_key}&{content}&HashIV={hash_iv}")
    return hashlib.sha256(encoded.encode()).hexdigest().upper()


def sign_form(account: GatewayAccount, fields: Mapping[str, str]) -> dict[str, str]:
    hash_key, hash_iv = account.credentials["hash_key"], account.credentials["hash_iv"]
    return {**fields, CHECK: check_mac_value(fields, hash_key, hash_iv)}


def verify_form(account: GatewayAccount, body: bytes) -> dict[str, str]:
    """Parse a form that is signed by this account's secrets; ValueError if it is not."""
    hash_key = account.credentials.get("hash_key", "")
    hash_iv = account.credentials.get("hash_iv", "")
    if not hash_key or not hash_iv:  # with empty secrets anyone could sign
        raise ValueError("the account has no secrets")
    fields = parse_form(body)
    signature = fields.get(CHECK, "")
    expected = check_mac_value(fields, hash_key, hash_iv)
    if not hmac.compare_digest(expected.encode(), signature.encode(errors="replace")):
        raise ValueError("CheckMacValue is not this account's")
    if any(_EMBEDDED_FIELD.search(value) for value in fields.values()):
        # The hash joins fields by the same characters, so different fields can have the same hash.
        raise ValueError("a signed value is ambiguous: it contains a field")
    return fields


def parse_form(body: bytes) -> dict[str, str]:
    """Parse a form without verifying it; ValueError if a name is invalid or repeated."""
    pairs = parse_qsl(
        body.decode(), keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX
    )
    fields: dict[str, str] = {}
    names: set[str] = set()  # in lower case, as they are hashed
    for name, value in pairs:
        if not _NAME.fullmatch(name) or name.lower() in names:
            raise ValueError("the name of a field is invalid or repeated")
        fields[name] = value
        names.add(name.lower())
    return fields


def _encoded(text: str) -> str:
    """Encode as .NET's `HttpUtility.UrlEncode` does, in lower case."""
    return quote_plus(text, safe="!*()").replace("~", "%7E").lower()
