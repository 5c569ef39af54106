"""The console's responses are not cached, not framed, and run only our scripts."""

import pytest
from starlette.routing import Route

from payintent.console.routes import CONSOLE_ROUTES
from payintent.service import Service
from tests.console.visitor import Visitor
from tests.support.stage import Stage
from tests.support.world import Answer, Api

_ROUTES = [route for route in CONSOLE_ROUTES if isinstance(route, Route)]
_OPEN = "/static/"  # files that are the same for all, kept for ever
_STREAM = "/today/events"


@pytest.fixture
def operated(production: Service) -> Service:
    return production


def _paths(stage: Stage) -> dict[str, str]:
    """Return a URL of each readable route."""
    known = {
        "payment_id": stage.known["payment"],
        "case_id": stage.known["case"],
        "refund_id": stage.known["refund"],
        "event_id": stage.known["event"],
        "merchant_id": stage.known["merchant"],
        "approval_id": stage.known["approval"],
        "extension": "csv",
        "subject": "payment",
        "verb": "list",
    }
    return {
        route.path: route.path.format_map(known)
        for route in _ROUTES
        if "GET" in (route.methods or ()) and not route.path.startswith(_OPEN)
    }


async def test_responses_cannot_be_cached_or_framed_and_run_only_our_scripts(
    operator: Api, stage: Stage
) -> None:
    visitor, stranger = Visitor(operator), Visitor(operator)
    await visitor.sign_in(stage.tokens["Ada"])
    paths = _paths(stage)
    assert len(paths) > 20
    lacks: dict[str, list[str]] = {}
    for route, path in paths.items():
        answers = [await stranger.get(path)]
        if route != _STREAM:
            answers.append(await visitor.get(path))
        for answer in answers:
            if found := _lacking(answer):
                lacks[f"{route} {answer.status}"] = found
    assert lacks == {}


def _lacking(answer: Answer) -> list[str]:
    headers = answer.headers
    found = [] if headers.getall("Cache-Control", []) == ["no-store"] else ["Cache-Control"]
    if headers.get("Content-Type", "").startswith("text/html"):
        policy = headers.get("Content-Security-Policy", "")
        found += [
            wanted
            for wanted in ("default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'")
            if wanted not in policy
        ]
        found += [word for word in ("unsafe", "*") if word in policy]
    found += [] if headers.get("X-Content-Type-Options") == "nosniff" else ["nosniff"]
    found += [] if headers.get("Referrer-Policy") == "same-origin" else ["Referrer-Policy"]
    return found
