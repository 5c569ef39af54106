"""Output that no terminal's encoding can stop."""

import codecs
import io
import json
import sys

_ESCAPE = "payintent.escape"


def write_any_text() -> None:
    r"""Escape characters that the encoding of standard output or error lacks, as in `\u2713`.

    Escapes are JSON's, so that JSON that is printed stays the same JSON. Bytes of standard input
    that the encoding cannot decode are replaced.
    """
    codecs.register_error(_ESCAPE, _escape)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ESCAPE)
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")


def _escape(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end
