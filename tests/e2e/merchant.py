"""Simulate a merchant with a webhook receiver, buyers and access to the service."""

import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urljoin, urlsplit
from uuid import UUID, uuid4

import aiohttp
import asyncpg
from aiohttp import web
from standardwebhooks import Webhook, WebhookVerificationError

from payintent.core import ids
from payintent.service import Service
from tests.e2e.sandbox import Sandbox
from tests.support.http_server import clean_up
from tests.support.timeouts import wait_until

APPROVED = "4242424242424242"

Responder = Callable[["Delivery"], Awaitable[web.Response]]


@dataclass(frozen=True)
class Delivery:
    """A received webhook. `event` was parsed after the official library had verified it."""

    webhook_id: str
    body: bytes
    headers: dict[str, str]
    event: dict[str, Any]
    at: float

    @property
    def type(self) -> str:
        return self.event["type"]

    @property
    def payment_id(self) -> str:
        return self.event["data"]["payment"]["id"]


async def accept(_: Delivery) -> web.Response:
    return web.Response(status=204)


class Receiver:
    """A real HTTP server that verifies and stores webhooks, with configurable responses."""

    def __init__(self) -> None:
        self.secret = ""
        self.answer: Responder = accept
        self.deliveries: list[Delivery] = []
        self.verification_errors: list[str] = []
        self.port = 0
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    async def start(self) -> None:
        """Start listening, on the previous port if there was one."""
        app = web.Application()
        app.router.add_post("/hook", self._receive)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await clean_up(self._runner)
            self._runner = None

    def deliveries_for(self, payment: dict[str, Any]) -> list[Delivery]:
        return [delivery for delivery in self.deliveries if delivery.payment_id == payment["id"]]

    async def _receive(self, request: web.Request) -> web.Response:
        body = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        try:
            event = Webhook(self.secret).verify(body, headers)
        except WebhookVerificationError as error:
            self.verification_errors.append(repr(error))
            return web.Response(status=401)
        delivery = Delivery(headers["webhook-id"], body, headers, event, time.monotonic())
        self.deliveries.append(delivery)
        return await self.answer(delivery)


@dataclass
class Merchant:
    """A merchant and its buyers."""

    sandbox: Sandbox
    http: aiohttp.ClientSession
    database: asyncpg.Connection
    receiver: Receiver
    id: int
    api_key: str
    secret: str
    service: Service
    headers: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.headers = {"Authorization": f"Bearer {self.api_key}"}
        self.receiver.secret = self.secret

    async def api(
        self, method: str, path: str, body: Any = None, key: str | None = None
    ) -> tuple[int, Any]:
        """Call the API as the merchant; return the status and the JSON."""
        headers = self.headers | ({"Idempotency-Key": key} if key else {})
        url = self.sandbox.dev_json["api_url"] + path
        async with self.http.request(method, url, json=body, headers=headers) as answer:
            return answer.status, json.loads(await answer.read())

    async def create(self, **changes: Any) -> dict[str, Any]:
        body = {"currency": "USD", "amount": "49.90", "payer_uid": "buyer-1"} | changes
        status, payment = await self.api("POST", "/payments", body, str(uuid4()))
        assert status == 201, payment
        return payment

    async def cancel(self, payment: dict[str, Any]) -> None:
        status, answer = await self.api("POST", f"/payments/{payment['id']}/cancel")
        assert status == 200, answer

    async def get(self, payment: dict[str, Any]) -> dict[str, Any]:
        status, current = await self.api("GET", f"/payments/{payment['id']}")
        assert status == 200, current
        return current

    async def quotes(self, payment: dict[str, Any]) -> list[dict[str, Any]]:
        status, answer = await self.api("GET", f"/checkout/{payment['checkout_id']}/quotes")
        assert status == 200, answer
        return answer["quotes"]

    async def try_select(self, payment: dict[str, Any], number: int = 0) -> tuple[int, Any]:
        method = (await self.quotes(payment))[number]["payment_method_id"]
        path = f"/checkout/{payment['checkout_id']}/quotes"
        return await self.api("POST", path, {"payment_method_id": method})

    async def select(self, payment: dict[str, Any], number: int = 0) -> str:
        """Select a method; return the URL of the gateway's page."""
        status, answer = await self.try_select(payment, number)
        assert status == 200, answer
        return answer["next_action"]["redirect"]["url"]

    async def pay(self, page: str, card: str = APPROVED) -> str:
        """Enter a card on the gateway's page; return the URL to which it redirects."""
        async with self.http.post(page, data={"card": card}, allow_redirects=False) as answer:
            assert answer.status == 303, await answer.text()
            return answer.headers["Location"]

    async def return_to_checkout(self, payment: dict[str, Any]) -> None:
        """Open the return page, as a redirected buyer does."""
        url = f"{self.sandbox.dev_json['checkout_base']}/{payment['checkout_id']}/return"
        async with self.http.get(url, allow_redirects=False) as answer:
            assert answer.status == 303

    async def wait_for_status(self, payment: dict[str, Any], status: str) -> dict[str, Any]:
        """Wait until a payment has this status."""

        async def get_if_in_status() -> dict[str, Any] | None:
            current = await self.get(payment)
            return current if current["status"] == status else None

        return await wait_until(get_if_in_status, f"{payment['id']} is {status}")

    async def wait_for_webhook(self, payment: dict[str, Any], kind: str) -> Delivery:
        """Wait for a payment's webhook, and check that it is the only event and has this type."""
        [delivery, *_] = await wait_until(
            lambda: self.receiver.deliveries_for(payment), f"webhook {kind}"
        )
        assert delivery.type == kind
        assert {item.webhook_id for item in self.receiver.deliveries_for(payment)} == {
            delivery.webhook_id
        }
        assert self.receiver.verification_errors == []
        return delivery

    async def rows(self, query: str, *args: Any) -> list[Any]:
        return await self.database.fetch(query, *args)

    async def events(self, payment: dict[str, Any]) -> list[str]:
        rows = await self.rows("SELECT type FROM event WHERE payment_id = $1", key_of(payment))
        return [row["type"] for row in rows]

    async def cases(self, payment: dict[str, Any]) -> list[str]:
        rows = await self.rows(
            "SELECT kind FROM money_case WHERE payment_id = $1 ORDER BY id", key_of(payment)
        )
        return [row["kind"] for row in rows]

    async def wait_for_case(self, payment: dict[str, Any], kind: str) -> None:
        await wait_until(lambda: self.cases(payment), f"case {kind}")
        assert await self.cases(payment) == [kind]

    async def delivery_of(self, payment: dict[str, Any]) -> Any:
        [row] = await self.rows(
            "SELECT d.* FROM delivery d JOIN event e ON e.id = d.event_id WHERE e.payment_id = $1",
            key_of(payment),
        )
        return row

    async def attempts(self, payment: dict[str, Any], count: int = 1) -> list[Any]:
        """Wait until this many attempts for a payment's event are stored; return them."""

        async def read_attempts() -> list[Any] | None:
            rows = await self.rows(
                "SELECT a.* FROM attempt a JOIN event e ON e.id = a.event_id "
                "WHERE e.payment_id = $1 ORDER BY a.id",
                key_of(payment),
            )
            return rows if len(rows) >= count else None

        return await wait_until(read_attempts, f"{count} attempts")

    async def simulator(self, method: str, path: str, body: Any = None) -> Any:
        """Query the gateway directly."""
        url = self.sandbox.dev_json["simulator_url"] + path
        headers = {"Authorization": f"Bearer {self.sandbox.simulator_key()}"}
        async with self.http.request(method, url, json=body, headers=headers) as answer:
            return json.loads(await answer.read())

    async def callbacks(self, payment: dict[str, Any]) -> list[dict[str, Any]]:
        """List the gateway's callbacks for a payment's sessions, with our responses."""
        rows = await self.rows("SELECT id FROM session WHERE payment_id = $1", key_of(payment))
        names = {ids.format_id(ids.SESSION, row["id"]) for row in rows}
        log = await self.simulator("GET", "/_sim/log")
        return [item for item in log if item["kind"] == "callback" and item["reference"] in names]

    async def wait_for_callbacks(self, payment: dict[str, Any], count: int) -> list[dict[str, Any]]:
        """Wait until we have acknowledged this many gateway callbacks with 200."""

        async def read_acknowledged() -> list[dict[str, Any]] | None:
            calls = await self.callbacks(payment)
            return calls if sum(call.get("status") == 200 for call in calls) >= count else None

        return await wait_until(read_acknowledged, f"{count} callbacks")


def key_of(payment: dict[str, Any]) -> UUID:
    payment_id = ids.parse_id(ids.PAYMENT, payment["id"])
    assert payment_id is not None
    return payment_id


async def move_clock(database: asyncpg.Connection, seconds: float) -> None:
    """Set the service's clock this many seconds ahead of the real time."""
    await database.execute(
        "CREATE OR REPLACE FUNCTION clock() RETURNS timestamptz LANGUAGE sql STABLE "
        "RETURN date_trunc('milliseconds', statement_timestamp()) "
        f"+ interval '{seconds} seconds'"
    )


async def stop_clock(database: asyncpg.Connection) -> None:
    """Stop the service's clock, so that no further deliveries become due."""
    now = await database.fetchval("SELECT clock()")
    await database.execute(
        "CREATE OR REPLACE FUNCTION clock() RETURNS timestamptz LANGUAGE sql STABLE "
        f"RETURN timestamptz '{now.isoformat()}'"
    )


@dataclass
class Form:
    """A form on a page: its URL, and the values that it sends by default."""

    action: str
    fields: dict[str, str]
    label: str = ""


class _Forms(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self._in_form = False
        self._in_button = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._in_form = attributes.get("method") == "post"
            if self._in_form:
                self.forms.append(Form(attributes["action"], {}))
        elif self._in_form and (attributes.get("type") == "hidden" or "checked" in attributes):
            self.forms[-1].fields[attributes["name"]] = attributes.get("value", "")
        self._in_button = tag == "button"

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._in_form = False

    def handle_data(self, data: str) -> None:
        if self._in_button and self._in_form:
            self.forms[-1].label += data


class Browser:
    """A buyer's browser without scripts. It can submit the forms of the current page."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self._http = http
        self.url = ""
        self.text = ""
        self.forms: list[Form] = []

    async def open(self, url: str) -> None:
        async with self._http.get(url, allow_redirects=False) as answer:
            await self._load(answer)

    async def submit(self, form: Form, **inputs: str) -> None:
        async with self._http.post(
            urljoin(self.url, form.action), data=form.fields | inputs, allow_redirects=False
        ) as answer:
            await self._load(answer)

    def form(self, label: str) -> Form:
        """Return the form if its button's label starts with these words (`Pay 1,590.00 THB`)."""
        [form] = [form for form in self.forms if f"{form.label.strip()} ".startswith(f"{label} ")]
        return form

    def form_to(self, name: str) -> Form:
        """Return the form that leads to a subpage with this name."""
        [match] = [form for form in self.forms if urlsplit(form.action).path.endswith(f"/{name}")]
        return match

    async def _load(self, answer: aiohttp.ClientResponse) -> None:
        if answer.status == 303:
            await self.open(urljoin(str(answer.url), answer.headers["Location"]))
            return
        self.url, self.text = str(answer.url), await answer.text()
        assert answer.status == 200, self.text
        reader = _Forms()
        reader.feed(self.text)
        self.forms = reader.forms
