import asyncio
import datetime as dt
import gzip
import json
import time
from uuid import uuid4

import pytest
from standardwebhooks import Webhook

from payintent.merchants.callback_secrets import generate_secret
from payintent.merchants.model import encode_secret
from payintent.runtime.settings import Settings
from payintent.runtime.version import API_VERSION
from payintent.webhooks.model import OutgoingDelivery
from payintent.webhooks.sender import AttemptOutcome, WebhookSender
from tests.support.authority import Authority
from tests.support.tcp_server import TcpServer

KEYS = (generate_secret(), generate_secret())
BODY = '{"type":"payment.completed","data":{"note":"käse"}}'.encode()
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.fixture
async def sender():
    senders = []

    def make(**changes):
        lookup, tls = changes.pop("lookup", None), changes.pop("tls", None)
        clock = changes.pop("clock", time.time)
        senders.append(WebhookSender(_settings(**changes), clock, lookup=lookup, tls=tls))
        return senders[-1]

    yield make
    for item in senders:
        await item.close()


async def test_a_delivery_follows_standard_webhooks_and_can_be_verified(sender, endpoint):
    async with endpoint(OK) as merchant:
        delivery = _delivery(merchant.url)
        attempt = await sender().send(delivery)
        ((line, headers, body),) = merchant.requests
    assert (attempt.succeeded, attempt.outcome, attempt.status) == (
        True,
        AttemptOutcome.DELIVERED,
        200,
    )
    assert (attempt.answer, attempt.is_gone, attempt.retry_after_s) == ("ok", False, None)
    assert line == "POST /hook HTTP/1.1"
    assert body == BODY
    assert headers["webhook-id"] == str(delivery.event_id)
    assert headers["content-type"] == "application/json"
    assert headers["accept-encoding"] == "identity"
    assert headers["user-agent"] == f"PaymentIntentService-Webhooks/{API_VERSION}"
    for key in KEYS:
        assert Webhook(encode_secret(key)).verify(body, headers) == json.loads(BODY)


async def test_each_attempt_has_a_new_timestamp_and_signature_but_the_same_id(sender, endpoint):
    times = iter([1_700_000_000.9, 1_700_000_060.1])
    async with endpoint(OK) as merchant:
        webhook_sender = sender(clock=lambda: next(times))
        delivery = _delivery(merchant.url)
        await webhook_sender.send(delivery)
        await webhook_sender.send(delivery)
        first, second = (headers for _, headers, _ in merchant.requests)
    assert (first["webhook-timestamp"], second["webhook-timestamp"]) == ("1700000000", "1700000060")
    assert first["webhook-id"] == second["webhook-id"]
    assert first["webhook-signature"] != second["webhook-signature"]


async def test_connections_are_reused_and_cookies_are_not_stored(sender, endpoint):
    answer = b"HTTP/1.1 204 No Content\r\nSet-Cookie: a=b\r\n\r\n"
    async with endpoint(answer) as merchant:
        webhook_sender = sender()
        for _ in range(3):
            assert (await webhook_sender.send(_delivery(merchant.url))).status == 204
        assert merchant.connections == 1
        assert all("cookie" not in headers for _, headers, _ in merchant.requests)


@pytest.mark.parametrize("status", [400, 401, 404, 422, 500, 502, 503])
async def test_an_error_status_is_a_failure_and_the_response_body_is_stored(
    sender, endpoint, status
):
    answer = b"HTTP/1.1 %d No\r\nContent-Length: 4\r\n\r\noops" % status
    async with endpoint(answer) as merchant:
        attempt = await sender().send(_delivery(merchant.url))
    assert (attempt.succeeded, attempt.outcome, attempt.status) == (
        False,
        AttemptOutcome.HTTP_ERROR,
        status,
    )
    assert (attempt.answer, attempt.detail, attempt.is_gone) == ("oops", f"HTTP {status}", False)


async def test_a_410_response_marks_the_endpoint_as_gone(sender, endpoint):
    async with endpoint(b"HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n") as merchant:
        attempt = await sender().send(_delivery(merchant.url))
    assert attempt.is_gone
    assert not attempt.succeeded


@pytest.mark.parametrize(
    ("status", "value", "expected"),
    [
        (429, "120", 120),
        (503, "0", 0),
        (429, "Wed, 15 Nov 2023 00:00:00 GMT", 86_400),
        (429, "Wed, 15 Nov 2023 00:00:00 -0000", 86_400),
        (503, "Sun, 06 Nov 1994 08:49:37 GMT", 0),
        (429, "soon", None),
        (429, "-5", None),
        (429, "1.5", None),
        (429, "9" * 5000, None),
        (429, "Wed, 99 Nov 9999999 00:00:00 GMT", None),
        (429, "", None),
        (500, "120", None),
        (404, "120", None),
    ],
)
async def test_retry_after_is_read_from_429_and_503(sender, endpoint, status, value, expected):
    answer = b"HTTP/1.1 %d No\r\nRetry-After: %s\r\nContent-Length: 0\r\n\r\n"
    now = dt.datetime(2023, 11, 14, tzinfo=dt.UTC).timestamp()
    async with endpoint(answer % (status, value.encode())) as merchant:
        attempt = await sender(clock=lambda: now).send(_delivery(merchant.url))
    assert (attempt.outcome, attempt.retry_after_s) == (AttemptOutcome.HTTP_ERROR, expected)


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 307, 308])
async def test_a_redirect_is_not_followed_and_only_its_host_is_reported(
    sender, endpoint, trap, status
):
    location = f"http://127.0.0.1:{trap.port}/path?token=secret".encode()
    answer = b"HTTP/1.1 %d Moved\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n" % (status, location)
    async with endpoint(answer) as merchant:
        attempt = await sender().send(_delivery(merchant.url))
    assert (attempt.succeeded, attempt.outcome, attempt.status) == (
        False,
        AttemptOutcome.REDIRECT,
        status,
    )
    assert attempt.detail == "redirect to 127.0.0.1, not followed"
    assert trap.is_untouched()


@pytest.mark.parametrize("location", [b"", b"/there", b"http://[::1", b"\xff\xfe", b"http:// /"])
async def test_a_redirect_with_an_invalid_location_is_still_a_redirect(sender, endpoint, location):
    answer = b"HTTP/1.1 302 Moved\r\nLocation: " + location + b"\r\nContent-Length: 0\r\n\r\n"
    async with endpoint(answer) as merchant:
        attempt = await sender().send(_delivery(merchant.url))
    assert attempt.outcome is AttemptOutcome.REDIRECT


async def test_a_missing_response_times_out_at_the_deadline(sender, endpoint):
    async with endpoint(b"") as merchant:
        attempt = await sender(webhook_timeout_s=0.1).send(_delivery(merchant.url))
    assert attempt.outcome is AttemptOutcome.TIMEOUT
    assert 100 <= attempt.duration_ms < 2000


async def test_a_slow_endless_body_is_cut_off_at_the_deadline(sender, endpoint):
    async def drip(writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        while not writer.is_closing():
            writer.write(b".")
            await writer.drain()
            await asyncio.sleep(0.02)

    async with endpoint(drip) as merchant:
        attempt = await sender(webhook_timeout_s=0.15).send(_delivery(merchant.url))
    assert (attempt.outcome, attempt.status) == (AttemptOutcome.DELIVERED, 200)
    assert attempt.duration_ms < 2000


async def test_endless_interim_responses_time_out_at_the_deadline(sender, endpoint):
    async def interim(writer):
        while not writer.is_closing():
            writer.write(b"HTTP/1.1 102 Processing\r\n\r\n")
            await writer.drain()
            await asyncio.sleep(0.01)

    async with endpoint(interim) as merchant:
        attempt = await sender(webhook_timeout_s=0.15).send(_delivery(merchant.url))
    assert attempt.outcome is AttemptOutcome.TIMEOUT


@pytest.mark.parametrize("is_cut", [True, False])
@pytest.mark.parametrize("status", [302, 410, 429, 500, 503])
async def test_the_status_decides_even_if_the_body_is_truncated_or_slow(
    sender, endpoint, status, is_cut
):
    async def respond(writer):
        head = (
            f"HTTP/1.1 {status} No\r\nRetry-After: 7\r\nContent-Length: 100\r\n\r\nHTTP/1.1 200 OK"
        )
        writer.write(head.encode())
        if is_cut:
            writer.write_eof()
        else:
            await asyncio.sleep(5)

    async with endpoint(respond) as merchant:
        attempt = await sender(webhook_timeout_s=0.3).send(_delivery(merchant.url))
    outcome = AttemptOutcome.REDIRECT if status == 302 else AttemptOutcome.HTTP_ERROR
    assert (attempt.outcome, attempt.status) == (outcome, status)
    assert attempt.retry_after_s == (7 if status in (429, 503) else None)


async def test_a_slow_dns_lookup_is_a_timeout(sender):
    async def never_resolve(_host):
        await asyncio.Event().wait()
        return []

    webhook_sender = sender(webhook_dns_timeout_s=0.02, lookup=never_resolve)
    attempt = await webhook_sender.send(_delivery("http://slow.example/"))
    assert (attempt.outcome, attempt.detail) == (
        AttemptOutcome.TIMEOUT,
        "the DNS lookup timed out",
    )


async def test_a_slow_connection_attempt_is_a_timeout(sender, trap):
    # If the listener's queue is full, the kernel does not respond to further connections.
    with trap.stuffed():
        webhook_sender = sender(webhook_connect_timeout_s=0.1)
        attempt = await webhook_sender.send(_delivery(f"http://127.0.0.1:{trap.port}/"))
    assert (attempt.outcome, attempt.detail) == (AttemptOutcome.TIMEOUT, "the connection timed out")


async def test_an_unknown_host_name_and_a_closed_port_are_connect_errors(sender, trap):
    async def resolve_nothing(_host):
        return []

    unknown = await sender(lookup=resolve_nothing).send(_delivery("http://unknown.example/"))
    assert (unknown.outcome, unknown.detail) == (
        AttemptOutcome.CONNECT_ERROR,
        "the host name cannot be resolved",
    )
    trap.close()
    closed = await sender().send(_delivery(f"http://127.0.0.1:{trap.port}/"))
    assert (closed.outcome, closed.detail) == (AttemptOutcome.CONNECT_ERROR, "connection refused")


async def test_an_endless_body_is_read_up_to_the_limit_and_closed(sender, endpoint):
    sent_bytes = 0

    async def endless(writer):
        nonlocal sent_bytes
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"400\r\n" + b"x" * 1024 + b"\r\n")
            await writer.drain()
            sent_bytes += 1024

    async with endpoint(endless) as merchant:
        attempt = await sender().send(_delivery(merchant.url))
    assert attempt.succeeded
    assert attempt.answer == "x" * 2048
    assert sent_bytes < 64 * 1024 * 1024


async def test_a_compressed_response_is_not_decompressed(sender, endpoint):
    packed = gzip.compress(b"\0" * 10_000_000)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
    async with endpoint(head + packed) as merchant:
        attempt = await sender().send(_delivery(merchant.url))
    assert attempt.succeeded
    assert attempt.answer.startswith("\x1f\ufffd\x08")


async def test_a_binary_response_is_stored_as_text_that_postgresql_accepts(sender, endpoint):
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n\x00\xffok"
    async with endpoint(answer) as merchant:
        attempt = await sender().send(_delivery(merchant.url))
    assert attempt.answer == "\ufffd\ufffdok"


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x00\x01\x02\x03\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 20",
        b"HTTP/1.1 200 OK",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/2.0 x 200 OK\r\n\r\n",
        b"garbage\r\nHTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\nX: HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        b"",
    ],
)
async def test_an_invalid_http_response_is_a_failure(sender, endpoint, answer):
    async def then_close(writer):
        writer.write(answer)
        writer.write_eof()

    async with endpoint(then_close) as merchant:
        attempt = await sender().send(_delivery(merchant.url))
    assert (attempt.succeeded, attempt.outcome) == (False, AttemptOutcome.BAD_RESPONSE)
    assert attempt.detail


@pytest.mark.parametrize(
    "rest",
    [
        b"",
        b"\r\n",
        b"Content-Length: 5\r\n",
        b"Content-Length: -1\r\n\r\n",
        b"Content-Length: many\r\n\r\n",
        b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"Content-Length: 100\r\n\r\nshort",
        b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nok",
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n5\r\nab",
        b"Transfer-Encoding: chunked, gzip\r\n\r\nok",
        b"Transfer-Encoding: nonsense\r\n\r\nok",
        b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\nok",
        b"Content-Encoding: br\r\n\r\n\x00\xff",
        b"no header\r\n\r\n",
        b": no name\r\n\r\n",
        b"X: \x00\r\n\r\n",
        b"X: " + b"a" * 40_000 + b"\r\nContent-Length: 0\r\n\r\n",
        b"X: %s\r\n" % (b"a" * 8_000) * 5 + b"Content-Length: 0\r\n\r\n",
        b"X: a\r\n" * 5_000 + b"Content-Length: 0\r\n\r\n",
        b"\r\nHTTP/1.1 500 No\r\n\r\n",
    ],
)
@pytest.mark.parametrize(
    "line", [b"200 OK", b"201 ", b"202", b"204 No Content", b"204", b"299 Odd", b"205 Reset"]
)
async def test_a_2xx_status_line_counts_as_delivered_regardless_of_the_rest(
    sender, endpoint, line, rest
):
    async def then_close(writer):
        writer.write(b"HTTP/1.1 " + line + b"\r\n" + rest)
        writer.write_eof()

    async with endpoint(then_close) as merchant:
        attempt = await sender().send(_delivery(merchant.url))
    assert (attempt.outcome, attempt.status) == (AttemptOutcome.DELIVERED, int(line[:3]))


@pytest.mark.parametrize(
    "length", [b"", b"Content-Length: 2\r\n", b"Transfer-Encoding: chunked\r\n"]
)
async def test_a_204_response_with_a_body_does_not_break_the_next_request(sender, endpoint, length):
    answer = b"HTTP/1.1 204 No Content\r\n" + length + b"\r\nok"
    async with endpoint(answer) as merchant:
        webhook_sender = sender()
        for _ in range(3):
            attempt = await webhook_sender.send(_delivery(merchant.url))
            assert (attempt.outcome, attempt.status) == (AttemptOutcome.DELIVERED, 204)
        assert len(merchant.requests) == 3


async def test_an_interim_response_does_not_determine_the_outcome(sender, endpoint):
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    for line, is_accepted in ((b"200 OK", True), (b"500 No", False)):
        async with endpoint(
            hints * 2 + b"HTTP/1.1 " + line + b"\r\nContent-Length: x\r\n\r\n"
        ) as merchant:
            assert (await sender().send(_delivery(merchant.url))).succeeded is is_accepted


async def test_a_reset_after_a_2xx_status_line_is_not_a_failure(sender, endpoint):
    async def reset(writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.transport.abort()

    async with endpoint(reset) as merchant:
        attempt = await sender().send(_delivery(merchant.url))
    assert (attempt.outcome, attempt.status) == (AttemptOutcome.DELIVERED, 200)


@pytest.mark.parametrize(
    "target",
    [
        "/hook?sp=%2Ftriggers&sig=a%2Bb%3D%3D%2F&pipe=a|b",
        "/a/../b/./c//d%2e%2E/%7Euser?x=%zz&y=100%&z=%",
        "/?q=\"<>^`{}'()*!$&+,;=:@~_-.",
        "/hook?",
        "/hook?a=1?b=2&&",
        "/%41%c3%a9?%41=%c3%a9",
        "//double",
        "/a;b=c",
    ],
)
async def test_a_url_is_requested_byte_for_byte(sender, endpoint, target):
    async with endpoint(OK) as merchant:
        origin = merchant.url.removesuffix("/hook")
        assert (await sender().send(_delivery(origin + target))).succeeded
        ((line, _, _),) = merchant.requests
    assert line == f"POST {target} HTTP/1.1"


async def test_a_reset_is_a_failure(sender, endpoint):
    async def reset(writer):
        writer.transport.abort()

    async with endpoint(reset) as merchant:
        attempt = await sender().send(_delivery(merchant.url))
    assert attempt.outcome in (AttemptOutcome.BAD_RESPONSE, AttemptOutcome.CONNECT_ERROR)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8080/",
        "http://[::1]:8080/",
        "http://169.254.169.254/latest/meta-data/",
        "http://2130706433/",
        "http://user@example.com/",
        "file:///etc/passwd",
        "nonsense",
    ],
)
async def test_a_forbidden_url_is_blocked_without_a_connection(sender, url):
    attempt = await sender(sandbox=False).send(_delivery(url))
    assert (attempt.succeeded, attempt.outcome, attempt.status) == (
        False,
        AttemptOutcome.BLOCKED,
        None,
    )
    assert attempt.detail


async def test_a_host_name_that_resolves_to_a_forbidden_address_is_blocked(sender, trap):
    async def resolve_to_unspecified(_host):
        return ["0.0.0.0"]  # noqa: S104 - connecting to it reaches loopback

    webhook_sender = sender(lookup=resolve_to_unspecified)
    attempt = await webhook_sender.send(_delivery(f"http://rebind.example:{trap.port}/"))
    assert attempt.outcome is AttemptOutcome.BLOCKED
    assert "unspecified" in attempt.detail
    assert trap.is_untouched()


async def test_proxy_environment_variables_are_ignored(sender, endpoint, trap, monkeypatch):
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{trap.port}")
    monkeypatch.setenv("no_proxy", "")
    async with endpoint(OK) as merchant:
        assert (await sender().send(_delivery(merchant.url))).succeeded
    assert trap.is_untouched()


async def test_an_untrusted_certificate_is_a_tls_error(sender, endpoint, authority):
    async with endpoint(OK, tls=authority.server("merchant.example")) as merchant:
        attempt = await sender().send(_delivery(merchant.url))
    assert (attempt.outcome, merchant.requests) == (AttemptOutcome.TLS_ERROR, [])
    assert "certificate: unable to get local issuer certificate" in attempt.detail


async def test_a_plain_http_server_at_an_https_url_is_a_tls_error(sender):
    async def answer(_reader, writer):
        writer.write(OK)
        await writer.drain()
        writer.close()

    async with TcpServer(answer) as server:
        attempt = await sender().send(_delivery(f"https://127.0.0.1:{server.port}/"))
    assert (attempt.outcome, attempt.detail) == (
        AttemptOutcome.TLS_ERROR,
        "the TLS handshake failed",
    )


async def test_the_certificate_is_verified_against_the_host_name(sender, endpoint, authority):
    async def resolve_to_loopback(_host):
        return ["127.0.0.1"]

    async with endpoint(OK, tls=authority.server("merchant.example")) as merchant:
        webhook_sender = sender(lookup=resolve_to_loopback, tls=authority.client())
        right_name = await webhook_sender.send(
            _delivery(f"https://merchant.example:{merchant.port}/")
        )
        wrong_name = await webhook_sender.send(_delivery(f"https://other.example:{merchant.port}/"))
        ((_, headers, _),) = merchant.requests
    assert right_name.succeeded
    assert headers["host"] == f"merchant.example:{merchant.port}"
    assert wrong_name.outcome is AttemptOutcome.TLS_ERROR
    assert "other.example" in wrong_name.detail


async def test_a_closed_sender_can_be_used_again(sender, endpoint):
    webhook_sender = sender()
    async with endpoint(OK) as merchant:
        assert (await webhook_sender.send(_delivery(merchant.url))).succeeded
        await webhook_sender.close()
        assert (await webhook_sender.send(_delivery(merchant.url))).succeeded
        assert merchant.connections == 2


async def test_a_send_can_be_cancelled(sender, endpoint):
    async with endpoint(b"") as merchant:
        sending = asyncio.ensure_future(sender().send(_delivery(merchant.url)))
        while not merchant.requests:
            await asyncio.sleep(0)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending


async def test_the_repr_of_a_delivery_contains_no_secret_or_body():
    text = repr(_delivery("http://example.com/"))
    assert "payment.completed" not in text
    assert repr(KEYS[0]) not in text


def _settings(**changes):
    required = {"database_url": "postgresql://none", "pepper": "none", "keyring": "none"}
    return Settings(**required, **{"sandbox": True} | changes)


def _delivery(url):
    return OutgoingDelivery(
        event_id=uuid4(),
        payment_id=uuid4(),
        merchant_id=1,
        attempts=0,
        url=url,
        body=BODY,
        secrets=KEYS,
    )


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)
