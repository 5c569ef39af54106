"""The part of HTTP/1.1 that the benchmark uses: small messages with a declared length."""

_END = b"\r\n\r\n"
_LENGTH = b"content-length: "


def body_start(data: bytes) -> int:
    """Return the offset of a message's body, or 0 while the message is incomplete."""
    start = data.find(_END) + len(_END)
    if start < len(_END):
        return 0
    head = data[:start].lower()
    at = head.find(_LENGTH)
    length = int(head[at + len(_LENGTH) : head.find(b"\r\n", at)]) if at >= 0 else 0
    return start if len(data) >= start + length else 0


def request(method: str, path: str, headers: dict[str, str], body: bytes = b"") -> bytes:
    """Return the bytes of a request to the loopback address."""
    lines = [f"{method} {path} HTTP/1.1", "host: 127.0.0.1"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body:
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join(lines).encode() + _END + body
