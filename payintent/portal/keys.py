"""Portal pages for API keys: list and revoke keys, and create keys on the test side."""

from starlette.responses import Response

from payintent.core.access import get_merchant_prefix
from payintent.core.errors import RefusedError
from payintent.http.errors import get_http_status
from payintent.members.edit_test_side import create_test_key
from payintent.members.model import MemberRight
from payintent.merchants.access_operations import list_own_keys, revoke_own_key
from payintent.portal.visits import MemberVisit, member_page, redirect, take_change_token


@member_page(MemberRight.SEE_KEYS)
async def get_keys(visit: MemberVisit) -> Response:
    return await _render_keys_page(visit)


@member_page(MemberRight.MANAGE_TEST)
async def post_key(visit: MemberVisit) -> Response:
    """`POST /merchant/keys`: create a test key, and show it once."""
    try:
        await take_change_token(visit)
        issued_key = await create_test_key(
            visit.context.operation_context,
            visit.actor,
            visit.merchant_id,
            name=visit.form.get("name", ""),
            newest_key=visit.form.get("newest_key", ""),
        )
    except RefusedError as refusal:
        return await _render_keys_page(visit, refusal)
    return visit.render(
        "secret.html",
        "Your test key",
        label="API key",
        secret=issued_key.api_key,
        next_path="/merchant/keys",
    )


@member_page(MemberRight.REVOKE_KEYS)
async def post_revoke_key(visit: MemberVisit) -> Response:
    public_id: str = visit.request.path_params["public_id"]
    await revoke_own_key(visit.context.operation_context, visit.merchant_id, visit.actor, public_id)
    return redirect("/merchant/keys")


async def _render_keys_page(visit: MemberVisit, refusal: RefusedError | None = None) -> Response:
    keys = await list_own_keys(visit.context.database, visit.merchant_id)
    return visit.render(
        "keys.html",
        "API keys",
        status=get_http_status(refusal) if refusal else 200,
        keys=keys,
        prefix=get_merchant_prefix(not visit.in_test),
        name=visit.form.get("name", ""),
        problem_text=refusal and refusal.message,
    )
