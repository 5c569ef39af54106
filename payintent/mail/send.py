"""Deliver due mail. Mail is deleted once it is sent or abandoned."""

from collections.abc import Awaitable, Callable
from email.message import EmailMessage
from uuid import UUID

import msgspec
from prometheus_client import Counter

from payintent.core.errors import LockTimeoutError, StorageUnavailableError
from payintent.db.database import Database
from payintent.mail import store as mail_store
from payintent.mail.message import Mail, MailKind, UnsendableMailError, compose, next_mail_wait_s
from payintent.mail.smtp_client import SendOutcome, SendResult, SmtpClient
from payintent.mail.store import MailRecord
from payintent.runtime.encryption import Encryption, EncryptionKeyError, mail_context
from payintent.runtime.log import get_logger

_log = get_logger("mail")
_BATCH = 10
_LEASE_S = 900  # enough for ten mails with at most four server round trips each
MAILS = Counter("payintent_mails_total", "Attempts to send a mail", ["kind", "outcome"])
#: Composes the receipt for a payment, or returns None if there is no recipient.
ComposeReceipt = Callable[[UUID], Awaitable[Mail | None]]


class MailSender:
    """Sends due mail through the mail server. Several workers can share the outbox."""

    def __init__(
        self,
        database: Database,
        encryption: Encryption,
        client: SmtpClient,
        sender: str,
        compose_receipt: ComposeReceipt,
    ) -> None:
        self._database = database
        self._encryption = encryption
        self._client = client
        self._sender = sender
        self._compose_receipt = compose_receipt

    async def step(self) -> bool:
        """Send a batch; return whether more mail may be due."""
        records = await mail_store.claim_due(self._database, _BATCH, _LEASE_S)
        to_send = list[tuple[MailRecord, EmailMessage]]()
        for record in records:
            message = await self._compose(record)
            if isinstance(message, SendResult):
                await self._finish(record, message)
            else:
                to_send.append((record, message))
        results = await self._client.send([message for _, message in to_send]) if to_send else []
        for (record, _), result in zip(to_send, results, strict=True):
            await self._finish(record, result)
        return len(records) == _BATCH

    async def _compose(self, record: MailRecord) -> EmailMessage | SendResult:
        """Compose a mail. Failures are returned as results, so that a mail cannot block others."""
        try:
            mail = await self._load(record)
            if mail is None:
                return SendResult(SendOutcome.NEEDLESS)
            return compose(mail, self._sender, str(record.id))
        except (UnsendableMailError, msgspec.DecodeError) as error:
            return SendResult(SendOutcome.REFUSED, type(error).__name__)
        except EncryptionKeyError as error:  # this process may have an older key ring
            return SendResult(SendOutcome.LATER, type(error).__name__)
        except (StorageUnavailableError, LockTimeoutError):
            raise  # affects all mails; the next step tries again
        except Exception as error:  # noqa: BLE001 - a defect in this mail only
            _log.error("mail_not_written", mail=str(record.id), exc_info=error)
            return SendResult(SendOutcome.LATER, type(error).__name__)

    async def _load(self, record: MailRecord) -> Mail | None:
        if record.kind is MailKind.RECEIPT:
            assert record.payment_id is not None  # noqa: S101 - mail_content
            return await self._compose_receipt(record.payment_id)
        assert record.sealed is not None  # noqa: S101 - mail_content
        content = self._encryption.decrypt(record.sealed, mail_context(record.id))
        return msgspec.json.decode(content, type=Mail)

    async def _finish(self, record: MailRecord, result: SendResult) -> None:
        """Schedule the next attempt, or delete the mail if no attempt is needed."""
        wait_s = next_mail_wait_s(record.attempts)
        if result.outcome is SendOutcome.LATER and wait_s is not None:
            MAILS.labels(record.kind, "later").inc()
            _log.warning("mail_put_off", mail=str(record.id), why=result.why, in_s=wait_s)
            await mail_store.put_off(self._database, record.id, wait_s)
            return
        if result.outcome is SendOutcome.SENT:
            MAILS.labels(record.kind, "sent").inc()
        elif result.outcome is not SendOutcome.NEEDLESS:
            _log_given_up(record, result.why)
        await mail_store.delete(self._database, record.id)


def _log_given_up(record: MailRecord, why: str) -> None:
    MAILS.labels(record.kind, "given_up").inc()
    _log.warning(
        "mail_given_up",
        mail=str(record.id),
        kind=record.kind,
        why=why,
        attempts=record.attempts,
        payment=str(record.payment_id) if record.payment_id else None,
    )
