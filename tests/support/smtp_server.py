"""A threaded mail server: SMTP with STARTTLS, TLS and authentication."""

import base64
import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

USER, PASSWORD = "payintent", "a-passw0rd"


@dataclass
class SmtpServer:
    """The received emails, and the server's behaviour."""

    port: int = 0
    tls: ssl.SSLContext | None = None  # for STARTTLS
    said: dict[str, str] = field(
        default_factory=dict
    )  # responses by command, in place of the normal responses
    hang_up_after: int | None = None  # maximum number of emails per connection
    received: list[tuple[str, bytes]] = field(default_factory=list)  # recipient and content
    offers: list[str] = field(default_factory=list)  # additional extensions
    commands: list[str] = field(default_factory=list)
    was_encrypted: list[bool] = field(default_factory=list)

    @property
    def mails(self) -> list[EmailMessage]:
        """The parsed emails."""
        return [_parsed(raw) for _, raw in self.received]


def _parsed(raw: bytes) -> Any:
    return message_from_bytes(raw, policy=policy.default)


class _Session(socketserver.StreamRequestHandler):
    """A connection. Each line is a command, identified by its first four letters."""

    server: "_Listening"

    def handle(self) -> None:
        self.recipient, self.count, self.is_encrypted = "", 0, False
        self._say("220 mail.test")
        while line := self.rfile.readline(1_000):
            text = line.decode().rstrip("\r\n")
            if not self._answer(text[:4].upper(), text):
                return

    def finish(self) -> None:
        """Also close the TLS layer of the connection."""
        super().finish()
        self.request.close()

    def _answer(self, command: str, text: str) -> bool:
        credentials = self.server.known
        credentials.commands.append(text if command != "AUTH" else "AUTH")
        if command in credentials.said:
            self._say(credentials.said[command])
            return True
        if command == "DATA":
            return self._read_mail()
        if command == "STAR":
            self._say("220 go ahead")
            self._encrypt()
        elif command == "EHLO":
            offers = ["mail.test", "AUTH PLAIN", *credentials.offers]
            offers += ["STARTTLS"] if credentials.tls and not self.is_encrypted else []
            for offer in offers[:-1]:
                self._say(f"250-{offer}")
            self._say(f"250 {offers[-1]}")
        elif command == "AUTH":
            right = base64.b64encode(f"\0{USER}\0{PASSWORD}".encode()).decode()
            self._say("235 welcome" if text.endswith(f" {right}") else "535 not you")
        elif command == "QUIT":
            self._say("221 bye")
            return False
        else:
            if command == "RCPT":
                self.recipient = text.partition("<")[2].rstrip(">")
            self._say("250 ok")
        return True

    def _read_mail(self) -> bool:
        credentials = self.server.known
        if credentials.hang_up_after is not None and self.count >= credentials.hang_up_after:
            return False
        self._say("354 go on")
        lines: list[bytes] = []
        while (line := self.rfile.readline()) not in {b".\r\n", b""}:
            lines.append(line)
        credentials.received.append((self.recipient, b"".join(lines)))
        credentials.was_encrypted.append(self.is_encrypted)
        self.count += 1
        self._say("250 taken")
        return True

    def _encrypt(self) -> None:
        assert self.server.known.tls is not None
        self.request = self.server.known.tls.wrap_socket(self.request, server_side=True)
        self.rfile, self.wfile = self.request.makefile("rb"), self.request.makefile("wb", 0)
        self.is_encrypted = True

    def _say(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())


class _Listening(socketserver.ThreadingTCPServer):
    known: SmtpServer
    implicit: ssl.SSLContext | None = None
    allow_reuse_address = True

    def get_request(self) -> Any:
        connection, address = super().get_request()
        if self.implicit is not None:
            connection = self.implicit.wrap_socket(connection, server_side=True)
        return connection, address

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore the error: a client that distrusts the certificate disconnects."""


@contextmanager
def smtp_server(
    *, starttls: ssl.SSLContext | None = None, tls: ssl.SSLContext | None = None
) -> Iterator[SmtpServer]:
    """Listen on loopback until the test ends."""
    with _Listening(("127.0.0.1", 0), _Session) as listening:
        listening.implicit = tls
        listening.known = SmtpServer(port=listening.server_address[1], tls=starttls)
        thread = threading.Thread(target=listening.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield listening.known
        finally:
            listening.shutdown()
            thread.join()
