"""Encryption of payer data in place: each value stays in its column and is bound to its row.

A sealed value has the form `sealed:<key>:<digest>:<base64>`. Plain values never start with this
prefix: email addresses contain no colon, and metadata and events start with a brace. A column can
therefore contain both forms. Sealed metadata is a JSON string, plain metadata a JSON object.
"""

import re
from base64 import b64decode, b64encode
from collections.abc import Sequence
from uuid import UUID

import msgspec
from prometheus_client import Counter

from payintent.core import ids
from payintent.runtime.encryption import Encryption, EncryptionKeyError
from payintent.runtime.log import get_logger

_log = get_logger("payer_sealing")
_PREFIX = "sealed:"
_JSON_PREFIX = '"' + _PREFIX
#: Sealed metadata in an event body. The metadata is the last field of the body.
_SEALED_METADATA = re.compile(r'"metadata":("sealed:[^"]*")\}\}\}\Z')
_PAYMENT_ID = re.compile(r'"id":"([^"]*)"')
_EMPTY = "{}"  # never sealed, because retention need not erase it

UNREADABLE = Counter(
    "payintent_payer_rows_unreadable_total", "Reads of rows that could not be decrypted", ["table"]
)


class PayerSealing:
    """Encrypts payer data if sealing is enabled; always decrypts sealed data.

    Raises `EncryptionKeyError` if a value belongs to a different row or its key is missing.
    """

    def __init__(self, encryption: Encryption, *, is_on: bool) -> None:
        self._encryption = encryption
        self.is_on = is_on
        self.writer = encryption.current_key_name
        self.key_names = list(encryption.fingerprints)

    def seal_email(self, payment_id: UUID, email: str | None) -> str | None:
        if not self.is_on or email is None:
            return email
        digest = self._encryption.compute_search_digest(email.lower(), "email")
        return self._encrypt(email, _make_email_context(payment_id), digest)

    def seal_metadata(self, payment_id: UUID, metadata: str) -> str:
        """Return the value for the JSON column `metadata` of a payment."""
        if not self.is_on or metadata == _EMPTY:
            return metadata
        order_id = find_order_id(metadata)
        digest = (
            "" if order_id is None else self._encryption.compute_search_digest(order_id, "order")
        )
        return f'"{self._encrypt(metadata, _make_metadata_context(payment_id), digest)}"'

    def seal_body(self, event_id: UUID, body: str) -> str:
        return self._encrypt(body, _make_body_context(event_id), "") if self.is_on else body

    def unseal_email(self, payment_id: UUID, stored_value: str | None) -> str | None:
        if stored_value is None or not stored_value.startswith(_PREFIX):
            return stored_value
        return self._decrypt(stored_value, _make_email_context(payment_id))

    def unseal_metadata(self, payment_id: UUID, stored_value: str) -> str:
        if not stored_value.startswith(_JSON_PREFIX):
            return stored_value
        return self._decrypt(stored_value[1:-1], _make_metadata_context(payment_id))

    def unseal_body(self, event_id: UUID, stored_value: str) -> str:
        """Return the exact body of an event.

        Metadata that could not be decrypted when the event was recorded is decrypted now.
        """
        body = (
            self._decrypt(stored_value, _make_body_context(event_id))
            if stored_value.startswith(_PREFIX)
            else stored_value
        )
        sealed_metadata = _SEALED_METADATA.search(body) if body.endswith('"}}}') else None
        return body if sealed_metadata is None else self._unseal_metadata_in(body, sealed_metadata)

    def list_email_digests(self, email: str) -> Sequence[str]:
        """Return the digests of an email address, one for each key."""
        return self._encryption.compute_search_digests(email.lower(), "email")

    def list_order_digests(self, order_id: str) -> Sequence[str]:
        """Return the digests of an order id, one for each key."""
        return self._encryption.compute_search_digests(order_id, "order")

    def has_current_form(self, stored_value: str | None) -> bool:
        """Return whether the value would have the same form if it were stored now.

        If sealing is disabled, a sealed value may stay sealed, but only if it is sealed with the
        first key of the key ring.
        """
        if stored_value is None or stored_value == _EMPTY:
            return True
        unquoted_value = stored_value.removeprefix('"')
        if not unquoted_value.startswith(_PREFIX):
            return not self.is_on
        return unquoted_value.split(":", 2)[1] == self.writer

    def with_sealing(self) -> "PayerSealing":
        """Return a copy with sealing enabled, to re-encrypt values with the first key."""
        return PayerSealing(self._encryption, is_on=True)

    def _unseal_metadata_in(self, body: str, sealed_metadata: re.Match[str]) -> str:
        match = _PAYMENT_ID.search(body)
        payment_id = ids.parse_id(ids.PAYMENT, match[1]) if match else None
        if payment_id is None:
            raise EncryptionKeyError("an event with sealed metadata has no payment id")
        metadata = self.unseal_metadata(payment_id, sealed_metadata[1])
        return f"{body[: sealed_metadata.start(1)]}{metadata}{body[sealed_metadata.end(1) :]}"

    def _encrypt(self, value: str, context: str, digest: str) -> str:
        box = self._encryption.encrypt(value.encode(), context)
        unprefixed_box = box[len(self._encryption.current_key_prefix) :]
        return f"{_PREFIX}{self.writer}:{digest}:{b64encode(unprefixed_box).decode()}"

    def _decrypt(self, stored_value: str, context: str) -> str:
        try:
            _, name, _, encoded = stored_value.split(":", 3)
            box = bytes([len(name)]) + name.encode() + b64decode(encoded, validate=True)
        except ValueError as error:  # includes binascii.Error
            raise EncryptionKeyError(f"{context} has been altered") from error
        return self._encryption.decrypt(box, context).decode()


def report_unreadable(table: str, row_id: UUID, error: EncryptionKeyError) -> None:
    """Log and count a row that was skipped because it could not be decrypted."""
    UNREADABLE.labels(table).inc()
    _log.error("sealed_row_unreadable", table=table, id=str(row_id), why=str(error))


def is_sealed(stored_value: str | None) -> bool:
    """Return whether an email address or payment metadata is still sealed."""
    return stored_value is not None and stored_value.startswith((_PREFIX, _JSON_PREFIX))


def find_order_id(metadata: str) -> str | None:
    """Return the order id in the metadata, as the database function `payment_order_id` does."""
    try:
        value = msgspec.json.decode(metadata, type=dict[str, msgspec.Raw]).get("order_id")
        if value is None:
            return None
        text = bytes(value).strip().decode()
        if text.startswith('"'):
            return msgspec.json.decode(text, type=str)
    except (
        msgspec.DecodeError
    ):  # a lone surrogate, for which the database does not find an order id either
        return None
    return None if text == "null" else text


def _make_email_context(payment_id: UUID) -> str:
    return f"payment:{payment_id}:payer_email"


def _make_metadata_context(payment_id: UUID) -> str:
    return f"payment:{payment_id}:metadata"


def _make_body_context(event_id: UUID) -> str:
    return f"event:{event_id}:body"
