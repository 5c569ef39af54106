"""The checkout page's buttons for sending test transfers to a test address."""

from starlette.responses import RedirectResponse, Response

from payintent.chains.store import TEST_DEPOSIT_PROVIDER
from payintent.checkout.page_fields import read_page_url
from payintent.checkout.rendering import HEADERS, with_error_pages
from payintent.checkout.visits import CheckoutVisit, checkout_route
from payintent.core.errors import ErrorCode, RefusedError
from payintent.http.pages.forms import read_form_fields
from payintent.payments.model import Session
from payintent.test_mode.deposits import TestTransfer


@with_error_pages
@checkout_route
async def post_transfer(visit: CheckoutVisit) -> Response:
    """`POST /c/{checkout_id}/test-transfer`: send the test transfer for the pressed button."""
    session = visit.snapshot.session
    if session is None or session.quote.provider != TEST_DEPOSIT_PROVIDER:
        raise RefusedError(ErrorCode.CHECKOUT_NOT_FOUND, "no test address")
    button = (await read_form_fields(visit.request)).get("send", "")
    await visit.context.buyer_simulator.send_from_page(session.id, _read_transfer(button, session))
    page_url = read_page_url(visit.request, visit.payment.checkout_id).current
    return RedirectResponse(page_url, 303, HEADERS)


def _read_transfer(button: str, session: Session) -> TestTransfer:
    total, token = session.quote.total_minor, session.quote.token
    if button == "test_deposit_half":
        return TestTransfer(amount_minor=max(1, total // 2))
    if button == "test_deposit_more":
        return TestTransfer(amount_minor=2 * total)
    if button == "test_deposit_other":
        return TestTransfer("USDC" if token == "USDT" else "USDT", total)  # noqa: S105
    return TestTransfer()
