"""Invitations and receipts by email, through a mail server on a socket."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr, ValidationError

from payintent.core.addresses import is_mail_address
from payintent.core.errors import LockTimeoutError, RefusedError, StorageUnavailableError
from payintent.mail.message import (
    Mail,
    MailKind,
    UnsendableMailError,
    compose,
    retry_delay_s,
    to_header_line,
)
from payintent.mail.send import ComposeMail, MailSender
from payintent.mail.smtp_client import SendOutcome, SmtpClient
from payintent.members.model import MemberRole
from payintent.members.operations import InviteMember
from payintent.merchants.operations import SetMerchantProfile
from payintent.privacy.keyring_operations import RotateKeyring
from payintent.runtime.encryption import EncryptionKeyError
from payintent.runtime.settings import Settings
from payintent.service import Service, open_service
from payintent.worker import open_mail_sender, run_loops
from payintent.worker_metrics import MAIL_OVERDUE, measure
from tests.support.authority import Authority
from tests.support.fakes import FakeGateway, captured
from tests.support.ports import free_port
from tests.support.smtp_server import PASSWORD, USER, SmtpServer, smtp_server
from tests.support.world import ACTOR, World

pytestmark = pytest.mark.full

_SENDER = "payments@pay.example.com"


@pytest.fixture
def server() -> Iterator[SmtpServer]:
    with smtp_server() as smtp:
        yield smtp


def _mailing(settings: Settings, port: int, **more: Any) -> Settings:
    address = {"smtp_host": "127.0.0.1", "smtp_port": port, "smtp_security": "none"}
    return settings.model_copy(update=address | {"smtp_from": _SENDER} | more)


@pytest.fixture
def settings(settings: Settings, server: SmtpServer) -> Settings:
    return _mailing(settings, server.port)


def mail_sender(service: Service) -> MailSender:
    return open_mail_sender(service, SmtpClient(service.settings))


async def _send_mail(world: World) -> bool:
    return await mail_sender(world.service).step()


async def _list_queued(world: World) -> list[Any]:
    return await world.rows("SELECT *, next_at - clock() AS waits FROM mail ORDER BY created_at")


async def _invite(world: World, email: str = "dee@shop.test") -> Any:
    return await world.perform(
        InviteMember(merchant_id=world.merchant_id, email=email, role=MemberRole.FINANCE)
    )


async def _pay(world: World, **changes: Any) -> UUID:
    payment = await world.create(**({"payer_email": "buyer@example.com"} | changes))
    session = (await world.select(payment)).session
    await world.report(payment, session.id, captured(159_000, reference=f"cap-{payment.id}"))
    return payment.id


async def _mail_receipts(world: World, **profile: Any) -> None:
    profile = {"mail_receipts": True, "name": "Nimbus Books"} | profile
    await world.perform(SetMerchantProfile(merchant_id=world.merchant_id, **profile))


async def test_an_invitation_link_is_mailed_and_not_displayed(
    world: World, server: SmtpServer
) -> None:
    invitation = await _invite(world)
    assert invitation.link is None
    assert server.received == []
    assert not await _send_mail(world)
    [mail] = server.mails
    assert (mail["To"], mail["From"]) == ("dee@shop.test", _SENDER)
    assert mail["Auto-Submitted"] == "auto-generated"
    link = re.search(r"http://\S+/merchant/link/(\S+)", mail.get_content())
    assert link is not None
    digest = world.service.encryption.digest(f"member link:{link[1]}")
    assert [row["digest"] for row in await world.rows("SELECT digest FROM member_link")] == [digest]
    assert await _list_queued(world) == []


async def test_queued_mail_is_encrypted_and_reencrypted_by_a_key_rotation(world: World) -> None:
    await _invite(world)
    [row] = await _list_queued(world)
    assert b"dee@shop.test" not in row["sealed"]
    writer = world.service.encryption.current_key_name
    assert world.service.encryption.get_key_name(row["sealed"]) == writer
    ring = world.service.settings.keyring.get_secret_value()
    rotated = world.service.settings.model_copy(
        update={"keyring": SecretStr(f"next:{'A' * 43}=,{ring}")}
    )
    service = await open_service(rotated, {"fake": FakeGateway()})
    await service.run_operation(RotateKeyring(), ACTOR)
    [row] = await _list_queued(world)
    assert service.encryption.get_key_name(row["sealed"]) == "next"
    await mail_sender(service).step()
    await service.close()
    assert await _list_queued(world) == []


async def test_receipts_are_sent_only_to_addresses_that_the_server_supports(
    world: World, server: SmtpServer
) -> None:
    await _mail_receipts(world)
    for email in ("info@bücher.example", "jörg@bücher.example", "a@localhost"):
        await _pay(world, payer_email=email)
    await _send_mail(world)
    assert [recipient for recipient, _ in server.received] == ["info@xn--bcher-kva.example"]
    assert await _list_queued(world) == []  # this server has no SMTPUTF8
    server.offers.append("SMTPUTF8")
    await _pay(world, payer_email="jörg@bücher.example")
    await _send_mail(world)
    assert server.received[1][0] == "jörg@xn--bcher-kva.example"
    assert "To: jörg@xn--bcher-kva.example" in server.received[1][1].decode()


async def test_a_receipt_is_mailed_in_the_merchants_language(
    world: World, server: SmtpServer
) -> None:
    await _mail_receipts(world, locale="th", support_url="https://shop.example.com/help")
    metadata = '{"order_id":"A-7","product":{"name":"Book\\n\\nPaid: 0","quantity":2}}'
    payment_id = await _pay(world, metadata=metadata)
    [row] = await _list_queued(world)
    assert (row["kind"], row["payment_id"], row["sealed"]) == ("receipt", payment_id, None)
    await _send_mail(world)
    [mail] = server.mails
    assert mail["To"] == "buyer@example.com"
    assert mail["From"] == f"Nimbus Books <{_SENDER}>"
    assert mail["Subject"] == "ใบเสร็จรับเงิน · Nimbus Books"
    text = mail.get_content()
    for expected in ("1,590.00 THB", "A-7", "rcpt_", "pay_", "Book Paid: 0 × 2", "/help"):
        assert expected in text, text
    thanks, _, number, *_ = text.splitlines()
    assert thanks == "ขอบคุณที่ชำระเงินให้ Nimbus Books"
    assert number.startswith("เลขที่ใบเสร็จรับเงิน: rcpt_")
    assert "buyer" not in text
    assert await _list_queued(world) == []


async def test_a_receipt_needs_an_address_the_merchants_setting_and_a_paid_payment(
    world: World,
) -> None:
    await _pay(world)
    await _mail_receipts(world)
    await _pay(world, payer_email=None)
    await world.create(payer_email="buyer@example.com")
    assert await _list_queued(world) == []


async def test_receipts_need_a_mail_server(world: World, settings: Settings) -> None:
    plain = settings.model_copy(update={"smtp_host": ""})
    service = await open_service(plain, {"fake": FakeGateway()})
    profile = SetMerchantProfile(merchant_id=world.merchant_id, mail_receipts=True)
    with pytest.raises(RefusedError, match="requires a mail server"):
        await service.run_operation(profile, ACTOR)
    invitation = InviteMember(
        merchant_id=world.merchant_id, email="a@b.test", role=MemberRole.FINANCE
    )
    assert (await service.run_operation(invitation, ACTOR)).link is not None
    await service.close()
    assert await _list_queued(world) == []


async def test_mail_to_a_busy_server_is_retried_and_finally_abandoned(
    world: World, server: SmtpServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.said["RCPT"] = "451 later"
    await _invite(world)
    at_s, waits = 0, []
    for _ in range(20):
        await _send_mail(world)
        queued = await _list_queued(world)
        if not queued:
            break
        waits.append(round(queued[0]["waits"].total_seconds()))
        at_s += waits[-1] + 1
        await world.move_clock(at_s)
    assert waits == [60, 300, 900, 3_600, 10_800, 21_600, 43_200, 86_400]
    assert retry_delay_s(9) is None
    output = capsys.readouterr().out
    assert "mail_given_up" in output
    assert "the server returned 451" in output
    assert "dee@shop" not in output
    assert server.received == []


@pytest.mark.parametrize("command", ["RCPT", "DATA"])
async def test_permanently_rejected_mail_is_abandoned_immediately(
    world: World, server: SmtpServer, command: str
) -> None:
    server.said[command] = "550 no such person"
    await _invite(world)
    await _send_mail(world)
    assert await _list_queued(world) == []


@pytest.mark.parametrize("command", ["MAIL", "EHLO"])
async def test_mail_is_not_abandoned_if_the_server_rejects_the_sender(
    world: World, server: SmtpServer, command: str
) -> None:
    server.said |= {command: "550 not you", "HELO": "550 not you"}
    await _invite(world)
    await _send_mail(world)
    assert len(await _list_queued(world)) == 1


async def test_a_dropped_connection_does_not_lose_mail(world: World, server: SmtpServer) -> None:
    await _invite(world, "a@shop.test")
    await _invite(world, "b@shop.test")
    server.hang_up_after = 1
    await _send_mail(world)
    assert len(server.received) == 1
    [queued] = await _list_queued(world)
    server.hang_up_after = None
    await world.move_clock(3_600)
    await _send_mail(world)
    assert {to for to, _ in server.received} == {"a@shop.test", "b@shop.test"}
    assert queued["attempts"] == 1


async def test_concurrent_workers_send_each_email_once(world: World, server: SmtpServer) -> None:
    await _mail_receipts(world)
    await _pay(world)
    [row] = await _list_queued(world)
    async with world.database.transaction() as tx:
        await tx.fetch("SELECT FROM mail FOR UPDATE")
        await _send_mail(world)  # another worker has claimed it
        assert server.received == []
    senders = [mail_sender(world.service) for _ in range(3)]
    await asyncio.gather(*(sender.step() for sender in senders))
    [mail] = server.mails  # sent by only one of three workers
    assert mail["Message-ID"] == f"<{row['id']}@pay.example.com>"


async def test_a_worker_sends_mail_and_deletes_expired_mail(
    world: World, server: SmtpServer
) -> None:
    await _invite(world)
    stop = asyncio.Event()
    running = asyncio.create_task(run_loops(world.service, stop))
    while not server.received:
        await asyncio.sleep(0.01)
    while await _list_queued(world):
        await asyncio.sleep(0.01)
    await world.rows(
        "INSERT INTO mail (kind, sealed, created_at, next_at) "
        "VALUES ('invitation', '', clock() - interval '73 hours', clock() + interval '1 hour')"
    )
    stop.set()
    await running
    stop = asyncio.Event()
    running = asyncio.create_task(run_loops(world.service, stop))
    while await _list_queued(world):
        await asyncio.sleep(0.01)
    stop.set()
    await running


async def test_the_age_of_overdue_mail_is_measured(world: World) -> None:
    await measure(world.service)
    assert MAIL_OVERDUE._value.get() == 0.0
    await _invite(world)
    await world.move_clock(600)
    await measure(world.service)
    assert 600 <= MAIL_OVERDUE._value.get() < 700


MALFORMED_ADDRESSES = [
    "a@b.test\r\nBcc: c@d.test",
    "a@b.test\nX: y",
    "a@b.test,c@d.test",
    "<a@b.test>",
    "A <a@b.test>",
    "a@b.test> SIZE=1",
    "a b@c.test",
    '"a"@b.test',
    "a@b@c.test",
    "a@b..test",
    "@b.test",
    "a@",
    "a@b",
    "ä\r\nBcc: c@d.test",
    "ä b@c.test",
    "ä>x@b.test",
    "ä＠x@b.test",
    "ä@b",
    f"{'ä' * 33}@b.test",
    "a@b\uff20ü.test",
    "a@b\u2028ü.test",
    "a@b.test\x00",
    f"{'a' * 65}@b.test",
    f"a@{'b' * 250}.test",
    ".a@b.test",
    "a.@b.test",
    "a..b@c.test",
    "a@-b.test",
    "a@b-.test",
    "a@b_c.test",
    "a@b=c.test",
    "a@b'c.test",
    "a@[127.0.0.1]",
    f"a@{'b' * 64}.test",
]


@pytest.mark.parametrize("address", MALFORMED_ADDRESSES)
def test_a_malformed_address_is_not_written_to_an_email(address: str) -> None:
    assert not is_mail_address(address)
    with pytest.raises(UnsendableMailError):
        compose(Mail(address, "x", "y"), _SENDER, "1")


_ANY_ADDRESS = st.from_regex(r"[!-~]{1,12}@[!-~]{1,8}\.[!-~]{1,8}", fullmatch=True)
_PLAIN_ADDRESS = st.from_regex(
    r"[a-z0-9.!#$%&'*+/=?^_`{|}~-]{1,8}@[a-z0-9._-]{1,8}", fullmatch=True
)


@given(address=_ANY_ADDRESS | _PLAIN_ADDRESS, name=st.text(), text=st.text() | st.just("\ud83d"))
def test_every_accepted_address_can_be_written_to_an_email(
    address: str, name: str, text: str
) -> None:
    mail = Mail(address, name, text, name)
    if is_mail_address(address):
        assert compose(mail, _SENDER, "1")["To"] == address
    else:
        with pytest.raises(UnsendableMailError):
            compose(mail, _SENDER, "1")


async def test_a_lone_surrogate_in_a_product_name_does_not_block_the_receipt(
    world: World, server: SmtpServer
) -> None:
    await _mail_receipts(world)
    await _pay(world, metadata=r'{"product":{"name":"Book \ud83d","quantity":1}}')
    await _send_mail(world)
    [mail] = server.mails
    assert "Book \ufffd" in mail.get_content()


@pytest.mark.parametrize(
    ("error", "is_retried"),
    [
        (RuntimeError("a fault of ours"), True),
        (EncryptionKeyError("an older key ring"), True),
        (msgspec.DecodeError("no mail"), False),
        (UnsendableMailError("no address"), False),
    ],
)
async def test_an_email_that_cannot_be_composed_does_not_block_other_mail(
    world: World, server: SmtpServer, error: Exception, is_retried: bool
) -> None:
    await _mail_receipts(world)
    payments = [await _pay(world) for _ in range(3)]

    async def write(payment_id: UUID) -> Mail:
        if payment_id == payments[1]:
            raise error
        return Mail("buyer@example.com", "Receipt", str(payment_id))

    await _open_receipt_sender(world, write).step()
    assert {mail.get_content().strip() for mail in server.mails} == {
        str(payments[0]),
        str(payments[2]),
    }
    queued = await _list_queued(world)
    assert [row["payment_id"] for row in queued] == ([payments[1]] if is_retried else [])
    # The query runs a moment after the delay began.
    assert [50 < row["waits"].total_seconds() <= 60 for row in queued] == [True] * is_retried


async def test_mail_that_could_not_be_read_during_a_database_outage_is_due_again(
    world: World, server: SmtpServer
) -> None:
    await _mail_receipts(world)
    payments = [await _pay(world) for _ in range(2)]

    async def write(payment_id: UUID) -> Mail:
        if payment_id == payments[1]:
            raise StorageUnavailableError("the primary has failed over")
        return Mail("buyer@example.com", "Receipt", str(payment_id))

    await _open_receipt_sender(world, write).step()
    [mail] = server.mails
    assert mail.get_content().strip() == str(payments[0])
    [queued] = await _list_queued(world)
    assert (queued["payment_id"], queued["attempts"]) == (payments[1], 0)
    await _send_mail(world)
    assert await _list_queued(world) == []


async def test_sent_mail_is_not_sent_again_if_its_row_was_locked(
    world: World, server: SmtpServer
) -> None:
    await _mail_receipts(world)
    payments = [await _pay(world) for _ in range(2)]
    key_rotation = await world.open_connection()
    transaction = key_rotation.transaction()

    async def write(payment_id: UUID) -> Mail:
        if payment_id == payments[1]:
            await transaction.start()
            await key_rotation.execute("SELECT FROM mail FOR NO KEY UPDATE")
        return Mail("buyer@example.com", "Receipt", str(payment_id))

    sender = _open_receipt_sender(world, write)
    with pytest.raises(LockTimeoutError):
        await sender.step()
    await transaction.rollback()
    await key_rotation.close()
    await sender.step()
    await world.move_clock(3_600)
    await sender.step()
    assert len(server.received) == len(payments)
    assert await _list_queued(world) == []


def _open_receipt_sender(world: World, write: ComposeMail) -> MailSender:
    service = world.service
    client = SmtpClient(service.settings)
    return MailSender(
        service.database, service.encryption, client, _SENDER, {MailKind.RECEIPT: write}, {}
    )


def test_line_breaks_in_names_and_subjects_do_not_add_headers() -> None:
    evil = "Shop\r\nBcc: eve@example.com\r\n\r\nbody\u2028\x00"
    mail = compose(Mail("a@b.test", evil, "text\r\n.\r\n", evil), _SENDER, "1")
    head, _, body = mail.as_bytes().partition(b"\r\n\r\n")
    names = [line.split(b":")[0] for line in head.split(b"\r\n") if line[:1] not in b" \t"]
    assert b"Bcc" not in names
    assert len(names) == len(set(names)) == 9, names
    assert b"eve" not in body
    assert to_header_line(evil) == "Shop Bcc: eve@example.com body"
    assert len(to_header_line("x" * 1_000)) == 200


async def test_a_line_with_a_single_dot_does_not_end_the_email(
    server: SmtpServer, settings: Settings
) -> None:
    mail = Mail("a@b.test", "x", "first\n.\nMAIL FROM:<eve@example.com>\nlast")
    [result] = await SmtpClient(settings).send([compose(mail, _SENDER, "1")])
    assert result.outcome is SendOutcome.SENT
    [(_, raw)] = server.received
    assert raw.endswith(b"last\r\n")


async def test_mail_to_a_stored_invalid_address_is_abandoned(
    world: World, server: SmtpServer
) -> None:
    await _mail_receipts(world)
    await _pay(world, payer_email="ä@localhost")
    await _send_mail(world)
    assert await _list_queued(world) == []
    assert server.commands == []


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.mark.parametrize("security", ["starttls", "tls"])
async def test_the_client_authenticates_after_the_connection_is_encrypted(
    settings: Settings, authority: Authority, security: str
) -> None:
    context = authority.server()
    with smtp_server(**{security: context}) as server:
        mail_settings = _mailing(
            settings,
            server.port,
            smtp_security=security,
            smtp_user=USER,
            smtp_password=SecretStr(PASSWORD),
            ca_file=str(authority.ca_file),
        )
        mail = compose(Mail("a@b.test", "x", "y"), _SENDER, "1")
        [result] = await SmtpClient(mail_settings).send([mail])
        assert result.outcome is SendOutcome.SENT, result
        assert server.was_encrypted == [security == "starttls"]
        assert "AUTH" in server.commands
        assert await SmtpClient(mail_settings).check_connection() is None
        wrong = mail_settings.model_copy(update={"smtp_password": SecretStr("guess")})
        assert await SmtpClient(wrong).check_connection() == "SMTPAuthenticationError 535"


async def test_no_mail_is_sent_to_a_server_with_an_untrusted_certificate(
    settings: Settings, authority: Authority
) -> None:
    with smtp_server(starttls=authority.server()) as server:
        mail_settings = _mailing(settings, server.port, smtp_security="starttls")
        assert "certificate" in str(await SmtpClient(mail_settings).check_connection())
        mail = compose(Mail("a@b.test", "x", "y"), _SENDER, "1")
        [result] = await SmtpClient(mail_settings).send([mail])
        assert (result.outcome, "certificate" in result.reason) == (SendOutcome.RETRY, True)
        assert not any(command.startswith("MAIL") for command in server.commands)


async def test_no_mail_is_sent_to_a_server_without_starttls(
    settings: Settings, server: SmtpServer
) -> None:
    mail_settings = _mailing(settings, server.port, smtp_security="starttls")
    mail = compose(Mail("a@b.test", "x", "y"), _SENDER, "1")
    [result] = await SmtpClient(mail_settings).send([mail])
    assert (result.outcome, result.reason) == (SendOutcome.RETRY, "SMTPNotSupportedError")
    assert server.received == []


async def test_mail_to_an_unreachable_server_is_retried(settings: Settings) -> None:
    mail = compose(Mail("a@b.test", "x", "y"), _SENDER, "1")
    [result] = await SmtpClient(_mailing(settings, free_port())).send([mail])
    assert (result.outcome, result.reason) == (SendOutcome.RETRY, "ConnectionRefusedError")


@pytest.mark.parametrize(
    ("update", "message"),
    [
        ({"smtp_from": ""}, "needs PAYINTENT_SMTP_FROM"),
        ({"smtp_host": "mail.example.com"}, "may be none only for a local mail server"),
        ({"smtp_user": "x"}, "needs PAYINTENT_SMTP_SECURITY starttls or tls"),
        ({"smtp_host": "a\r\nb"}, "must be a host name"),
        ({"smtp_from": "Shop <a@b.test>"}, "must be an address such as"),
    ],
)
def test_invalid_mail_settings_are_refused(
    settings: Settings, update: dict[str, str], message: str
) -> None:
    values = {name: getattr(settings, name) for name in Settings.model_fields}
    values |= {"chain_watched_s": 180.0} | update
    with pytest.raises(ValidationError, match=message):
        Settings(**values)
