"""Terminal output that does not fail because of the encoding."""

import codecs
import io
import json
import sys

_ESCAPE = "payintent.escape"


def write_any_text() -> None:
    r"""Escape characters that the encoding of standard output or error lacks, such as `\u2713`.

    JSON escapes keep printed JSON equivalent. Undecodable bytes of standard input are replaced.
    """
    codecs.register_error(_ESCAPE, _escape)
    for stream, errors in ((sys.stdout, _ESCAPE), (sys.stderr, _ESCAPE), (sys.stdin, "replace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)


def _escape(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end
