"""The `Content-Security-Policy` header of pages."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

_SELF = "'self'"
_NONE = "'none'"
#: Scheme, host and port, without characters that could end the directive or the header.
_SOURCE = re.compile(r"https?://(?:(?:\*\.)?[0-9A-Za-z.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")


@dataclass(frozen=True, slots=True)
class ScriptSources:
    scripts: tuple[str, ...] = ()
    frames: tuple[str, ...] = ()
    connections: tuple[str, ...] = ()
    inline: tuple[str, ...] = ()  # hashes of inline scripts


def content_security_policy(
    *,
    frame_ancestors: Iterable[str] = (),
    form_targets: Iterable[str | None] = (),
    scripts: ScriptSources | None = None,
    styles: Iterable[str] = (),
) -> str:
    """Build a policy that allows these sources and, except for frames, our own origin.

    `scripts` is None for a page without scripts. `styles` are hashes of inline styles, which then
    are the only styles allowed.
    """
    directives = {
        "default-src": _NONE,
        "style-src": " ".join(styles) or _SELF,
        "img-src": f"{_SELF} data:",
        "base-uri": _NONE,
        "frame-ancestors": _join_sources(others=frame_ancestors) or _NONE,
        # Browsers apply this to the form's target and also to redirects of its response.
        "form-action": _join_sources(_SELF, others=form_targets),
    }
    if scripts is not None:
        directives["script-src"] = _join_sources(_SELF, *scripts.inline, others=scripts.scripts)
        directives["connect-src"] = _join_sources(_SELF, others=scripts.connections)
        if scripts.frames:
            directives["frame-src"] = _join_sources(others=scripts.frames)
    return "; ".join(f"{name} {sources}" for name, sources in directives.items())


def _join_sources(*ours: str, others: Iterable[str | None]) -> str:
    sources = {source for source in others if source and _SOURCE.fullmatch(source)}
    return " ".join([*ours, *sorted(sources)])
