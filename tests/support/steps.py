"""Costs in executed lines of Python, and hostile input whose cost must be linear."""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from hypothesis import strategies as st


def filled(start: bytes, part: bytes, size: int) -> bytes:
    return start + part * ((size - len(start)) // len(part))


#: Bodies of approximately a given size, by their defect.
HOSTILE: dict[str, Callable[[int], bytes]] = {
    "an unterminated string": lambda size: filled(b"{" * 201 + b'"', b'\\"', size),
    "brackets": lambda size: filled(b"", b"[{", size),
    "backslashes": lambda size: filled(b'{"metadata":"', b"\\", size),
    "halves of pairs": lambda size: filled(b'{"metadata":{"a":"', b"\\ud83d", size) + b'"}}',
    "many fields": lambda size: filled(b'{"a":0', b',"b":1', size) + b"}",
    "a long field": lambda size: filled(b'{"payer_email":"a@', b"a.", size) + b'a"}',
    "digits": lambda size: filled(b'{"amount":"', b"1", size) + b'"}',
    "a form": lambda size: filled(b"a=1", b"&%61=%25", size),
    "no text": lambda size: filled(b"", b"\xff\x00", size),
}


_BEGUN = [b"", b'"', b'{"', b"{" * 201 + b'"', b'{"metadata":', b'{"metadata":{"a":"', b"a="]
_BEGUN += [b'{"amount":"', b'{"payer_email":"a@', b'{"reason":"']
_REPEATED = [bytes([byte]) for byte in b'"\\{}[]:,.-@&=%/* \naAe01\x00\xff']
_REPEATED += [b"\\u", b"d83d", b"%2", b"\xf0\x9f", b"null", b'"a":']
_ENDED = [b"", b'"', b'"}', b'"}}', b"}", b"]", b"\\"]


def hostile() -> st.SearchStrategy[tuple[bytes, bytes, bytes]]:
    """Generated bodies: a beginning, a repeated part, and an end."""
    repeated = st.lists(st.sampled_from(_REPEATED), min_size=1, max_size=5).map(b"".join)
    return st.tuples(st.sampled_from(_BEGUN), repeated, st.sampled_from(_ENDED))


class Steps:
    """Counts the lines that this thread executes in files whose path starts with `prefix`."""

    def __init__(self, prefix: str) -> None:
        self.count = 0
        self._prefix = prefix

    def begin(self, frame: FrameType, event: str, argument: object) -> Any:
        del event, argument
        return self.step if frame.f_code.co_filename.startswith(self._prefix) else None

    def step(self, frame: FrameType, event: str, argument: object) -> Any:
        del frame, argument
        self.count += event == "line"
        return self.step


@contextmanager
def count_steps(prefix: str = "") -> Iterator[Steps]:
    """Count the lines executed in the block, by default in all libraries."""
    steps, before = Steps(prefix), sys.gettrace()
    sys.settrace(steps.begin)
    try:
        yield steps
    finally:
        sys.settrace(before)


#: Methods that read only a few characters, regardless of the text's length.
_SHORT = frozenset({"startswith", "endswith", "encode", "append", "group", "start", "end", "span"})


class Scans:
    """Counts this thread's executed lines, and the characters that each C call can scan."""

    def __init__(self) -> None:
        self.count = 0

    def begin(self, frame: FrameType, event: str, argument: object) -> Any:
        del frame, event, argument
        return self.step

    def step(self, frame: FrameType, event: str, argument: object) -> Any:
        del frame, argument
        self.count += event == "line"
        return self.step

    def call(self, frame: FrameType, event: str, function: Any) -> None:
        """Add the length of a method's text or, for an expression, of the frame's longest text."""
        if event != "c_call" or function.__name__ in _SHORT:
            return
        text = getattr(function, "__self__", None)
        if isinstance(text, str | bytes):
            self.count += len(text)
        elif isinstance(text, re.Pattern):
            texts = (each for each in frame.f_locals.values() if isinstance(each, str | bytes))
            self.count += max(map(len, texts), default=0)


@contextmanager
def count_scans() -> Iterator[Scans]:
    """Count this thread's steps in the block, in all libraries."""
    scans, before, profile_before = Scans(), sys.gettrace(), sys.getprofile()
    sys.settrace(scans.begin)
    sys.setprofile(scans.call)
    try:
        yield scans
    finally:
        sys.setprofile(profile_before)
        sys.settrace(before)
