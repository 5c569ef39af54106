"""Deliver due emails. An email is deleted once it has been sent or abandoned."""

from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from email.message import EmailMessage
from uuid import UUID

import msgspec
from prometheus_client import Counter

from payintent.core.errors import LockTimeoutError, StorageUnavailableError
from payintent.db.database import Database
from payintent.mail import store as mail_store
from payintent.mail.message import Mail, MailKind, UnsendableMailError, compose, retry_delay_s
from payintent.mail.smtp_client import SendOutcome, SendResult, SmtpClient
from payintent.mail.store import MailRecord
from payintent.runtime.encryption import Encryption, EncryptionKeyError, make_mail_context
from payintent.runtime.log import get_logger

_log = get_logger("mail")
_BATCH_SIZE = 10
_LEASE_S = 900  # enough for ten emails, each with at most four server round trips
MAILS = Counter("payintent_mails_total", "Attempts to send an email", ["kind", "outcome"])
#: Composes the email about a payment or refund. Returns None if there is no recipient.
ComposeMail = Callable[[UUID], Awaitable[Mail | None]]
#: Composes an email from its decrypted content. Returns None if it must no longer be sent.
ComposeSealedMail = Callable[[bytes], Awaitable[Mail | None]]


class MailSender:
    """Sends due emails. Several workers can share the outbox."""

    def __init__(
        self,
        database: Database,
        encryption: Encryption,
        client: SmtpClient,
        sender: str,
        composers: Mapping[MailKind, ComposeMail],
        sealed_composers: Mapping[MailKind, ComposeSealedMail],
    ) -> None:
        self._database = database
        self._encryption = encryption
        self._client = client
        self._sender = sender
        self._composers = composers
        self._sealed_composers = sealed_composers
        #: Results that have not been stored yet. They are kept while the database is unavailable.
        self._results = deque[tuple[MailRecord, SendResult]]()

    async def step(self) -> bool:
        """Send a batch; return whether more emails may be due."""
        await self._store_results()
        records = await mail_store.claim_due(self._database, _BATCH_SIZE, _LEASE_S)
        messages = list[tuple[MailRecord, EmailMessage]]()
        for record in records:
            message = await self._compose(record)
            if isinstance(message, SendResult):
                self._results.append((record, message))
            else:
                messages.append((record, message))
        results = await self._client.send([message for _, message in messages]) if messages else []
        self._results += zip((record for record, _ in messages), results, strict=True)
        await self._store_results()
        return len(records) == _BATCH_SIZE

    async def _store_results(self) -> None:
        while self._results:
            await self._finish(*self._results[0])
            self._results.popleft()

    async def _compose(self, record: MailRecord) -> EmailMessage | SendResult:
        """Compose an email. Failures are returned as results, so that other emails can be sent."""
        try:
            mail = await self._load_mail(record)
            if mail is None:
                return SendResult(SendOutcome.NO_RECIPIENT)
            return compose(mail, self._sender, str(record.id))
        except (UnsendableMailError, msgspec.DecodeError) as error:
            return SendResult(SendOutcome.REFUSED, type(error).__name__)
        except EncryptionKeyError as error:  # this process may have an outdated key ring
            return SendResult(SendOutcome.RETRY, type(error).__name__)
        except (StorageUnavailableError, LockTimeoutError):
            return SendResult(SendOutcome.NOT_ATTEMPTED)
        except Exception as error:  # noqa: BLE001 - a defect must not block other emails
            _log.error("mail_not_written", mail=str(record.id), exc_info=error)
            return SendResult(SendOutcome.RETRY, type(error).__name__)

    async def _load_mail(self, record: MailRecord) -> Mail | None:
        subject_id = record.payment_id or record.refund_id
        if subject_id is not None:
            return await self._composers[record.kind](subject_id)
        assert record.sealed is not None  # noqa: S101 - guaranteed by `mail_content`
        content = self._encryption.decrypt(record.sealed, make_mail_context(record.id))
        compose_sealed = self._sealed_composers.get(record.kind)
        if compose_sealed is not None:
            return await compose_sealed(content)
        return msgspec.json.decode(content, type=Mail)

    async def _finish(self, record: MailRecord, result: SendResult) -> None:
        """Release the email, schedule a retry, or delete it if it has been sent or abandoned."""
        delay_s = retry_delay_s(record.attempts)
        if result.outcome is SendOutcome.NOT_ATTEMPTED:
            await mail_store.release(self._database, record)
            return
        if result.outcome is SendOutcome.RETRY and delay_s is not None:
            await mail_store.schedule_retry(self._database, record.id, delay_s)
            MAILS.labels(record.kind, "later").inc()
            _log.warning("mail_put_off", mail=str(record.id), why=result.reason, in_s=delay_s)
            return
        await mail_store.delete(self._database, record.id)
        if result.outcome is SendOutcome.SENT:
            MAILS.labels(record.kind, "sent").inc()
        elif result.outcome is not SendOutcome.NO_RECIPIENT:
            _report_abandoned(record, result.reason)


def _report_abandoned(record: MailRecord, reason: str) -> None:
    MAILS.labels(record.kind, "given_up").inc()
    _log.warning(
        "mail_given_up",
        mail=str(record.id),
        kind=record.kind,
        why=reason,
        attempts=record.attempts,
        payment=str(record.payment_id) if record.payment_id else None,
    )
