"""What is of a payer, sealed where it stands: in its own column, bound to its own row.

A sealed value is `sealed:<key>:<digest>:<base64>`. No plain one begins so: an e-mail address has no
colon, metadata and events begin with a brace. So both forms stand beside each other, and each is
read for what it is. Sealed metadata is a JSON string, which plain metadata never is.
"""

import binascii
import re
from base64 import b64decode, b64encode
from collections.abc import Sequence
from uuid import UUID

import msgspec
from prometheus_client import Counter

from payintent.domain import ids
from payintent.encryption import Encryption, EncryptionKeyError
from payintent.log import get_logger

_log = get_logger("payer_sealing")
_PREFIX = "sealed:"
_JSON_PREFIX = '"' + _PREFIX
#: An event of a payment whose metadata did not open: they are the last field of its body.
_SEALED_METADATA = re.compile(r'"metadata":("sealed:[^"]*")\}\}\}\Z')
_PAYMENT_ID = re.compile(r'"id":"([^"]*)"')
_NOTHING = "{}"  # metadata that say nothing stay plain, so that retention finds nothing to forget

UNREADABLE = Counter(
    "payintent_payer_rows_unreadable_total", "Reads of a sealed row that did not open", ["table"]
)


class PayerSealing:
    """Seals what is of a payer where the setting says so, and opens what was sealed at any time."""

    def __init__(self, encryption: Encryption, *, is_on: bool) -> None:
        self._encryption = encryption
        self.is_on = is_on
        self.writer = encryption.writer
        self.key_names = list(encryption.marks)

    def email_to_store(self, payment_id: UUID, email: str | None) -> str | None:
        """Return what the column `payer_email` of a payment gets."""
        if not self.is_on or email is None:
            return email
        return self._seal(email, _email_place(payment_id), self._digest(email.lower(), "email"))

    def metadata_to_store(self, payment_id: UUID, metadata: str) -> str:
        """Return what the column `metadata` of a payment gets, a JSON text."""
        if not self.is_on or metadata == _NOTHING:
            return metadata
        order_id = order_id_of(metadata)
        digest = "" if order_id is None else self._digest(order_id, "order")
        return f'"{self._seal(metadata, _metadata_place(payment_id), digest)}"'

    def body_to_store(self, event_id: UUID, body: str) -> str:
        """Return what the column `body` of an event gets."""
        return self._seal(body, _body_place(event_id), "") if self.is_on else body

    def email(self, payment_id: UUID, stored: str | None) -> str | None:
        """Return the e-mail of a payment, byte for byte (`EncryptionKeyError` of another row's)."""
        if stored is None or not stored.startswith(_PREFIX):
            return stored
        return self._open(stored, _email_place(payment_id))

    def metadata(self, payment_id: UUID, stored: str) -> str:
        """Return the metadata of a payment, byte for byte (`EncryptionKeyError` as `email`)."""
        if not stored.startswith(_JSON_PREFIX):
            return stored
        return self._open(stored[1:-1], _metadata_place(payment_id))

    def body(self, event_id: UUID, stored: str) -> str:
        """Return the body of an event, byte for byte (`EncryptionKeyError` as `email`).

        The metadata of its payment are opened too, where they did not open when it was composed.
        """
        body = self._open(stored, _body_place(event_id)) if stored.startswith(_PREFIX) else stored
        sealed = _SEALED_METADATA.search(body) if body.endswith('"}}}') else None
        return body if sealed is None else self._with_metadata(body, sealed)

    def digests_of_email(self, email: str) -> Sequence[str]:
        """Return the digests that an e-mail may have been sealed with: one of each key."""
        return self._digests(email.lower(), "email")

    def digests_of_order(self, order_id: str) -> Sequence[str]:
        """Return the digests that metadata with an order's number may have been sealed with."""
        return self._digests(order_id, "order")

    def is_as_written(self, stored: str | None) -> bool:
        """Tell whether a value is as it would be stored now; a plain one is where sealing is off.

        What is sealed stays sealed where the setting was switched off, but under the first key.
        """
        if stored is None or stored == _NOTHING:
            return True
        bare = stored.removeprefix('"')
        if not bare.startswith(_PREFIX):
            return not self.is_on
        return bare.split(":", 2)[1] == self.writer

    def always(self) -> "PayerSealing":
        """Return the same keys with sealing on: for what was sealed under another key."""
        return PayerSealing(self._encryption, is_on=True)

    def _with_metadata(self, body: str, sealed: re.Match[str]) -> str:
        named = _PAYMENT_ID.search(body)
        payment_id = ids.parse_id(ids.PAYMENT, named[1]) if named else None
        if payment_id is None:
            raise EncryptionKeyError("an event with sealed metadata names no payment")
        metadata = self.metadata(payment_id, sealed[1])
        return f"{body[: sealed.start(1)]}{metadata}{body[sealed.end(1) :]}"

    def _digests(self, text: str, kind: str) -> Sequence[str]:
        return self._encryption.search_digests(text, kind)

    def _digest(self, text: str, kind: str) -> str:
        return self._encryption.search_digest(text, kind)

    def _seal(self, value: str, place: str, digest: str) -> str:
        box = self._encryption.encrypt(value.encode(), place)
        bare = box[len(self._encryption.writer_prefix) :]
        return f"{_PREFIX}{self.writer}:{digest}:{b64encode(bare).decode()}"

    def _open(self, stored: str, place: str) -> str:
        try:
            _, name, _, encoded = stored.split(":", 3)
            box = b64decode(encoded, validate=True)
        except (ValueError, binascii.Error) as error:
            raise EncryptionKeyError(f"{place} is not what was sealed") from error
        return self._encryption.decrypt(bytes([len(name)]) + name.encode() + box, place).decode()


def note_unreadable(table: str, row_id: UUID, error: EncryptionKeyError) -> None:
    """Count and log a row that does not open, and that its reader therefore went on without."""
    UNREADABLE.labels(table).inc()
    _log.error("sealed_row_unreadable", table=table, id=str(row_id), why=str(error))


def is_sealed(stored: str | None) -> bool:
    """Tell whether an e-mail or metadata are still sealed, because they did not open."""
    return stored is not None and stored.startswith((_PREFIX, _JSON_PREFIX))


def order_id_of(metadata: str) -> str | None:
    """Return the order's number that metadata name, as `payment_order_id` of the database does."""
    try:
        value = msgspec.json.decode(metadata, type=dict[str, msgspec.Raw]).get("order_id")
        if value is None:
            return None
        text = bytes(value).strip().decode()
        if text.startswith('"'):
            return msgspec.json.decode(text, type=str)
    except msgspec.DecodeError:  # half a surrogate pair: nobody finds it, as in the database
        return None
    return None if text == "null" else text


def _email_place(payment_id: UUID) -> str:
    return f"payment:{payment_id}:payer_email"


def _metadata_place(payment_id: UUID) -> str:
    return f"payment:{payment_id}:metadata"


def _body_place(event_id: UUID) -> str:
    return f"event:{event_id}:body"
