"""The switch between a merchant's live side and its test side."""

from dataclasses import replace

from starlette.responses import Response

from payintent.core.errors import BadRequestError, ErrorCode, RefusedError
from payintent.members import sessions_store as session_store
from payintent.members.edit_test_side import create_test_side
from payintent.members.model import MemberRight
from payintent.merchants.access_operations import IssuedApiKey
from payintent.portal.visits import MemberVisit, get_safe_next_path, member_page, redirect

_LIVE, _TEST = "live", "test"
_ONLY_TEST = "This merchant has only a test side."
_NO_TEST_SIDE = (
    "The test side does not exist yet. A member with the developer role can create it by "
    "switching to it."
)


@member_page(any_side=True)
async def post_side(visit: MemberVisit) -> Response:
    """`POST /merchant/side`: switch this session to the `live` or `test` side.

    The first switch to the test side creates the test merchant, and shows its secrets once.
    """
    side = visit.form.get("side")
    if side not in {_LIVE, _TEST}:
        raise BadRequestError("Select the live side or the test side.")
    if not visit.session.livemode and side == _LIVE:
        raise BadRequestError(_ONLY_TEST)
    is_missing = side == _TEST and visit.session.test_merchant_id is None
    if is_missing and not visit.may(MemberRight.MANAGE_TEST):
        raise RefusedError(ErrorCode.FORBIDDEN, _NO_TEST_SIDE)
    # A session without a test side remains on the live side.
    await session_store.set_side(
        visit.context.database, visit.session.id, in_test=visit.session.livemode and side == _TEST
    )
    if is_missing:
        # Nothing may fail after this, because the secrets are shown only once.
        issued_key = await create_test_side(
            visit.context.operation_context, visit.actor, visit.session.merchant_id
        )
        if issued_key is not None:
            return _render_created_page(visit, issued_key)
    return redirect(get_safe_next_path(visit.form.get("page")))


def _render_created_page(visit: MemberVisit, issued_key: IssuedApiKey) -> Response:
    session = replace(visit.session, test_merchant_id=issued_key.merchant_id, in_test=True)
    return replace(visit, session=session).render(
        "side_created.html", "Your test side", issued_key=issued_key
    )
