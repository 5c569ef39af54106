"""An application that only sends a fixed response, for measuring the minimum cost of a request.

Run it with `python -m bench.empty_app PORT`. It uses the service's server, which handles HTTP and
request admission. The application has no routing, common headers or database.
"""

import sys

from starlette.types import Receive, Scope, Send

from payintent.http.server import make_server, serve_until_stopped
from payintent.runtime.settings import Settings

_BODY = b'{"status":"ok"}'
_HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(_BODY))]


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    """Send the same response to every request."""
    del scope, receive
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    await send({"type": "http.response.body", "body": _BODY})


class _Nothing:
    """An application that has nothing to shut down."""

    def on_drain(self) -> None:
        pass

    def on_stop(self) -> None:
        pass


def main() -> None:
    """Serve requests until stopped, with the settings from the environment."""
    port, settings = int(sys.argv[1]), Settings()  # type: ignore[call-arg] # from the environment
    server = make_server(answer, settings, "127.0.0.1", port, lifespan=False)
    serve_until_stopped([server], _Nothing(), 0)


if __name__ == "__main__":
    main()
