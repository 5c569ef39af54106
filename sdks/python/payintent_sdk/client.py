"""The two clients: `Client` and `AsyncClient`, with the same operations."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import httpx

from payintent_sdk import calls
from payintent_sdk.calls import Call
from payintent_sdk.connections import AsyncConnections, Connections
from payintent_sdk.events import EventFeed, FeedEvent
from payintent_sdk.models import Page
from payintent_sdk.retries import RetryPolicy, may_retry_answer, read_answer, retry_after_s
from payintent_sdk.sending import build_request, create_no_answer_error, send, send_async
from payintent_sdk.version import VERSION

P = ParamSpec("P")
T = TypeVar("T")

_TIMEOUT_S = 10.0
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_USER_AGENT = f"payintent-sdk-python/{VERSION}"


class _Tries:
    """The attempts of a call: the next request, and whether to retry after a response."""

    def __init__(self, call: Call[Any], policy: RetryPolicy, timeout_s: float) -> None:
        self._call = call
        self._policy = policy
        self._began = time.monotonic()
        self._tried = 0
        self._timeout_s = timeout_s
        self.whole_s = timeout_s + call.wait_s  # for each attempt

    def request(self, http: httpx.Client | httpx.AsyncClient) -> httpx.Request:
        self._tried += 1
        return build_request(http, self._call, self._timeout_s)

    def wait_after_answer(self, answer: httpx.Response) -> float | None:
        if not may_retry_answer(self._call, answer.status_code, answer.headers):
            return None
        return self._wait(retry_after_s(answer.headers))

    def wait_after_error(self, error: httpx.RequestError) -> float:
        wait = self._wait(None) if self._may_retry(error) else None
        if wait is None:
            raise create_no_answer_error(f"no response to attempt {self._tried}", error)
        return wait

    def read(self, answer: httpx.Response) -> Any:
        return read_answer(self._call, answer.status_code, answer.headers, answer.content)

    def _may_retry(self, error: httpx.RequestError) -> bool:
        return self._call.can_repeat or isinstance(error, _NOT_SENT)

    def _wait(self, after_s: float | None) -> float | None:
        return self._policy.wait_s(self._tried, time.monotonic() - self._began, after_s)


class _Resource:
    def __init__(self, client: Client) -> None:
        self._client = client


class _AsyncResource:
    def __init__(self, client: AsyncClient) -> None:
        self._client = client


def _sync(build: Callable[P, Call[T]]) -> Callable[Concatenate[_Resource, P], T]:
    @wraps(build)
    def method(self: _Resource, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._client.send(build(*args, **kwargs))

    return method


def _pages(build: Callable[P, Call[Page[T]]]) -> Callable[Concatenate[_Resource, P], Iterator[T]]:
    @wraps(build)
    def method(self: _Resource, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        while True:
            page = self._client.send(build(*args, **kwargs))
            yield from page.data
            if page.next_cursor is None:
                return
            kwargs["cursor"] = page.next_cursor

    return method


def _async(build: Callable[P, Call[T]]) -> Callable[Concatenate[_AsyncResource, P], Awaitable[T]]:
    @wraps(build)
    async def method(self: _AsyncResource, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._client.send(build(*args, **kwargs))

    return method


def _async_pages(
    build: Callable[P, Call[Page[T]]],
) -> Callable[Concatenate[_AsyncResource, P], AsyncIterator[T]]:
    @wraps(build)
    async def method(
        self: _AsyncResource, /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncIterator[T]:
        while True:
            page = await self._client.send(build(*args, **kwargs))
            for item in page.data:
                yield item
            if page.next_cursor is None:
                return
            kwargs["cursor"] = page.next_cursor

    return method


def _following(
    last: EventFeed | None, after: str | None, types: Sequence[str] | None
) -> Call[EventFeed] | None:
    """Return the call for the next page of the feed, or None at the end."""
    if last is None:
        return calls.list_events(after=after, types=types)
    return calls.list_events(after=last.after, types=types) if last.has_more else None


class Payments(_Resource):
    """`client.payments`."""

    create = _sync(calls.create_payment)
    get = _sync(calls.get_payment)
    list = _sync(calls.list_payments)
    iterate = _pages(calls.list_payments)
    cancel = _sync(calls.cancel_payment)


class Refunds(_Resource):
    """`client.refunds`."""

    create = _sync(calls.create_refund)
    get = _sync(calls.get_refund)
    list = _sync(calls.list_refunds)
    iterate = _pages(calls.list_refunds)
    list_updated = _sync(calls.list_updated_refunds)
    iterate_updated = _pages(calls.list_updated_refunds)


class PaymentLinks(_Resource):
    """`client.payment_links`."""

    create = _sync(calls.create_payment_link)
    get = _sync(calls.get_payment_link)
    list = _sync(calls.list_payment_links)
    iterate = _pages(calls.list_payment_links)
    deactivate = _sync(calls.deactivate_payment_link)


class Events(_Resource):
    """`client.events`: the event feed, for events whose webhooks were missed."""

    list = _sync(calls.list_events)
    replay = _sync(calls.replay_event)

    def iterate(
        self, *, after: str | None = None, types: Sequence[str] | None = None
    ) -> Iterator[FeedEvent]:
        """Yield every event after a cursor, up to the newest."""
        last = None
        while (call := _following(last, after, types)) is not None:
            last = self._client.send(call)
            yield from last.data


class Cases(_Resource):
    """`client.cases`."""

    list = _sync(calls.list_cases)
    iterate = _pages(calls.list_cases)


class Disputes(_Resource):
    """`client.disputes`."""

    list = _sync(calls.list_disputes)
    iterate = _pages(calls.list_disputes)


class Statements(_Resource):
    """`client.statements`: the merchant's balances and statements."""

    balance = _sync(calls.get_balance)
    get = _sync(calls.get_statement)
    list = _sync(calls.list_statements)
    iterate = _pages(calls.list_statements)


class Onchain(_Resource):
    """`client.onchain`: chains, and payments on them."""

    get_chain = _sync(calls.get_chain)
    get_session = _sync(calls.get_onchain_session)


class ClockOfTests(_Resource):
    """`client.test_clock`. Requires a test key."""

    get = _sync(calls.get_test_clock)
    advance = _sync(calls.advance_test_clock)


class TestPayments(_Resource):
    """`client.test_payments`: actions of buyers and banks. Requires a test key."""

    __test__ = False  # not a test class for pytest

    pay = _sync(calls.pay_test_payment)
    decline = _sync(calls.decline_test_payment)
    dispute = _sync(calls.dispute_test_payment)
    transfer = _sync(calls.transfer_to_test_payment)


class AsyncPayments(_AsyncResource):
    """`client.payments`."""

    create = _async(calls.create_payment)
    get = _async(calls.get_payment)
    list = _async(calls.list_payments)
    iterate = _async_pages(calls.list_payments)
    cancel = _async(calls.cancel_payment)


class AsyncRefunds(_AsyncResource):
    """`client.refunds`."""

    create = _async(calls.create_refund)
    get = _async(calls.get_refund)
    list = _async(calls.list_refunds)
    iterate = _async_pages(calls.list_refunds)
    list_updated = _async(calls.list_updated_refunds)
    iterate_updated = _async_pages(calls.list_updated_refunds)


class AsyncPaymentLinks(_AsyncResource):
    """`client.payment_links`."""

    create = _async(calls.create_payment_link)
    get = _async(calls.get_payment_link)
    list = _async(calls.list_payment_links)
    iterate = _async_pages(calls.list_payment_links)
    deactivate = _async(calls.deactivate_payment_link)


class AsyncEvents(_AsyncResource):
    """`client.events`: the event feed, for events whose webhooks were missed."""

    list = _async(calls.list_events)
    replay = _async(calls.replay_event)

    async def iterate(
        self, *, after: str | None = None, types: Sequence[str] | None = None
    ) -> AsyncIterator[FeedEvent]:
        """Yield every event after a cursor, up to the newest."""
        last = None
        while (call := _following(last, after, types)) is not None:
            last = await self._client.send(call)
            for item in last.data:
                yield item


class AsyncCases(_AsyncResource):
    """`client.cases`."""

    list = _async(calls.list_cases)
    iterate = _async_pages(calls.list_cases)


class AsyncStatements(_AsyncResource):
    """`client.statements`: the merchant's balances and statements."""

    balance = _async(calls.get_balance)
    get = _async(calls.get_statement)
    list = _async(calls.list_statements)
    iterate = _async_pages(calls.list_statements)


class AsyncDisputes(_AsyncResource):
    """`client.disputes`."""

    list = _async(calls.list_disputes)
    iterate = _async_pages(calls.list_disputes)


class AsyncOnchain(_AsyncResource):
    """`client.onchain`: chains, and payments on them."""

    get_chain = _async(calls.get_chain)
    get_session = _async(calls.get_onchain_session)


class AsyncClockOfTests(_AsyncResource):
    """`client.test_clock`. Requires a test key."""

    get = _async(calls.get_test_clock)
    advance = _async(calls.advance_test_clock)


class AsyncTestPayments(_AsyncResource):
    """`client.test_payments`: actions of buyers and banks. Requires a test key."""

    __test__ = False  # not a test class for pytest

    pay = _async(calls.pay_test_payment)
    decline = _async(calls.decline_test_payment)
    dispute = _async(calls.dispute_test_payment)
    transfer = _async(calls.transfer_to_test_payment)


class _Catalog(_Resource):
    get = _sync(calls.get_catalog)


class _AsyncCatalog(_AsyncResource):
    get = _async(calls.get_catalog)


class Client:
    """A blocking client.

    Use it in a `with` statement, or call `close`. It can be shared between threads and used on both
    sides of a fork. `timeout_s` limits connecting, each wait for data, and each attempt as a whole.
    The last limit is checked whenever a part of the response's body arrives.
    """

    def __init__(
        self,
        api_key: str,
        base_url: str,
        *,
        timeout_s: float = _TIMEOUT_S,
        retries: RetryPolicy | None = None,
    ) -> None:
        self._connections = Connections(api_key, base_url, _USER_AGENT)
        self._timeout_s = timeout_s
        self._retries = retries or RetryPolicy()
        self.payments = Payments(self)
        self.refunds = Refunds(self)
        self.payment_links = PaymentLinks(self)
        self.events = Events(self)
        self.cases = Cases(self)
        self.disputes = Disputes(self)
        self.statements = Statements(self)
        self.catalog = _Catalog(self)
        self.onchain = Onchain(self)
        self.test_clock = ClockOfTests(self)
        self.test_payments = TestPayments(self)

    def send(self, call: Call[T]) -> T:
        """Send a call, retry it if this is safe, and return the decoded response."""
        tries = _Tries(call, self._retries, self._timeout_s)
        while True:
            http = self._connections.current()
            try:
                answer = send(http, tries.request(http), tries.whole_s)
            except httpx.RequestError as error:
                wait = tries.wait_after_error(error)
            else:
                wait = tries.wait_after_answer(answer)
                if wait is None:
                    return tries.read(answer)
            time.sleep(wait)

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    def __enter__(self) -> Client:  # noqa: PYI034 - Python 3.10 has no Self
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClient:
    """An asyncio client.

    Use it in an `async with` statement, or await `close`. It can be used in several event loops.
    `close` closes the running loop's connections.
    """

    def __init__(
        self,
        api_key: str,
        base_url: str,
        *,
        timeout_s: float = _TIMEOUT_S,
        retries: RetryPolicy | None = None,
    ) -> None:
        self._connections = AsyncConnections(api_key, base_url, _USER_AGENT)
        self._timeout_s = timeout_s
        self._retries = retries or RetryPolicy()
        self.payments = AsyncPayments(self)
        self.refunds = AsyncRefunds(self)
        self.payment_links = AsyncPaymentLinks(self)
        self.events = AsyncEvents(self)
        self.cases = AsyncCases(self)
        self.disputes = AsyncDisputes(self)
        self.statements = AsyncStatements(self)
        self.catalog = _AsyncCatalog(self)
        self.onchain = AsyncOnchain(self)
        self.test_clock = AsyncClockOfTests(self)
        self.test_payments = AsyncTestPayments(self)

    async def send(self, call: Call[T]) -> T:
        """Send a call, retry it if this is safe, and return the decoded response."""
        tries = _Tries(call, self._retries, self._timeout_s)
        while True:
            http = self._connections.current()
            try:
                answer = await send_async(http, tries.request(http), tries.whole_s)
            except httpx.RequestError as error:
                wait = tries.wait_after_error(error)
            else:
                wait = tries.wait_after_answer(answer)
                if wait is None:
                    return tries.read(answer)
            await asyncio.sleep(wait)

    async def close(self) -> None:
        """Close the connections."""
        await self._connections.close()

    async def __aenter__(self) -> AsyncClient:  # noqa: PYI034 - Python 3.10 has no Self
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
