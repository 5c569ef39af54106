"""The Content-Security-Policy of a page of the hosted checkout."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from payintent.domain.web_origin import web_origin

_SELF = "'self'"
_NONE = "'none'"
#: Scheme, host and port, and no character that would end the directive or the header.
_SOURCE = re.compile(r"https?://(?:(?:\*\.)?[0-9A-Za-z.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")


@dataclass(frozen=True, slots=True)
class ScriptSources:
    scripts: tuple[str, ...] = ()
    frames: tuple[str, ...] = ()
    asks: tuple[str, ...] = ()
    inline: tuple[str, ...] = ()  # hashes of the scripts in the page


def content_security_policy(
    *,
    shows: Iterable[str | None] = (),
    framed_by: Iterable[str] = (),
    leads_to: Iterable[str | None] = (),
    runs: ScriptSources | None = None,
    styles: Iterable[str] = (),
) -> str:
    """Build a policy that allows what is named here and, except for frames, our own origin.

    `shows` are addresses of pictures; `runs` is None for a page without scripts. `styles` are
    hashes of the styles in the page, which are then the only ones.
    """
    directives = {
        "default-src": _NONE,
        "style-src": " ".join(styles) or _SELF,
        "img-src": _listed(_SELF, "data:", others=map(web_origin, filter(None, shows))),
        "base-uri": _NONE,
        "frame-ancestors": _listed(others=framed_by) or _NONE,
        # A browser blocks a form that is sent elsewhere, and also the redirect that answers it.
        "form-action": _listed(_SELF, others=leads_to),
    }
    if runs is not None:
        directives["script-src"] = _listed(_SELF, *runs.inline, others=runs.scripts)
        directives["connect-src"] = _listed(_SELF, others=runs.asks)
        if runs.frames:
            directives["frame-src"] = _listed(others=runs.frames)
    return "; ".join(f"{name} {sources}" for name, sources in directives.items())


def _listed(*ours: str, others: Iterable[str | None]) -> str:
    sources = {source for source in others if source and _SOURCE.fullmatch(source)}
    return " ".join([*ours, *sorted(sources)])
