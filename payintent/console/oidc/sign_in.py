"""OpenID Connect sign-in: the redirect to the identity provider and the callback."""

import hashlib
import unicodedata
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from payintent.console.access import check_host, get_own_origin
from payintent.console.context import ConsoleContext, get_console_context
from payintent.console.oidc.flow import VALIDITY_S, SignInFlow, begin_flow, resume_flow
from payintent.console.oidc.provider import IdentityProvider, sign_in_error
from payintent.console.rendering import render
from payintent.console.sessions import (
    NewSessionCookie,
    add_session,
    log_sign_in,
    make_console_cookie,
)
from payintent.console.sessions_store import SessionHolder
from payintent.console.sign_in import render_sign_in_error, sanitize_next_path
from payintent.core.access import find_highest_role, parse_claim_roles
from payintent.core.errors import NotFoundError, RefusedError
from payintent.db.database import Tx, get_current_time
from payintent.http.address_limits import PROVIDER_SIGN_IN
from payintent.http.pages.forms import SignInCookie
from payintent.operators import audit_store, identities_store
from payintent.operators.identities_store import NewSignIn, SignInResult
from payintent.operators.operation import IDENTITY_PREFIX
from payintent.runtime.settings import Settings

if TYPE_CHECKING:
    from payintent.console.oidc.id_token import IdToken


_CALLBACK = "/sign-in/oidc/callback"
_LABEL_CHARS_MAX = 100
_DIGEST_CHARS = 12
_CODE = "code"


async def get_oidc_sign_in(request: Request) -> Response:
    """`GET /sign-in/oidc`: redirect to the provider with a state that is bound to the browser."""
    context = get_console_context(request)
    check_host(request, context.settings)
    provider = _require_provider(context)
    next_path = sanitize_next_path(request.query_params.get("next", ""))
    try:
        metadata = await provider.get_metadata()
    except RefusedError as refusal:
        return render_sign_in_error(request, refusal, next_path)
    flow = begin_flow(context.encryption, next_path, await get_current_time(context.database))
    fields = {
        "response_type": _CODE,
        "client_id": provider.client_id,
        "redirect_uri": _redirect_uri(request, context.settings),
        "scope": "openid profile email",
        "state": flow.state,
        "nonce": flow.nonce,
        "code_challenge": flow.challenge,
        "code_challenge_method": "S256",
    }
    url = metadata.authorization_endpoint
    url += f"{'&' if '?' in url else '?'}{urlencode(fields)}"
    response = RedirectResponse(url, 303, {"Cache-Control": "no-store"})
    _make_flow_cookie(context.settings).set(response, flow.cookie)
    return response


async def get_oidc_callback(request: Request) -> Response:
    """`GET /sign-in/oidc/callback`: create a session for the identified person.

    Browsers do not send `SameSite=Strict` cookies after a cross-site redirect. The response is
    therefore a page that navigates to the next page.
    """
    context = get_console_context(request)
    settings = context.settings
    check_host(request, settings)
    provider = _require_provider(context)
    cookie = _make_flow_cookie(settings).read(request) or ""
    next_path = "/"
    try:
        async with context.attempts.attempt(request, PROVIDER_SIGN_IN):
            now = await get_current_time(context.database)
            state = request.query_params.get("state", "")
            flow = resume_flow(context.encryption, cookie, state, now)
            next_path = sanitize_next_path(flow.next_path)
            token = await _fetch_token(request, provider, flow)
            new_cookie, identity = await _open_session(context, request, flow, token)
    except RefusedError as refusal:
        response = render_sign_in_error(request, refusal, next_path)
        _make_flow_cookie(settings).clear(response)
        return response
    log_sign_in(context, request, new_cookie, identity.name, "oidc")
    response = render(request, "onward.html", next_path=next_path)
    _make_flow_cookie(settings).clear(response)
    make_console_cookie(settings).set(response, new_cookie.cookie)
    return response


async def _fetch_token(request: Request, provider: IdentityProvider, flow: SignInFlow) -> "IdToken":
    # Imported here because few installations need its libraries.
    from payintent.console.oidc.id_token import check_id_token

    query, context = request.query_params, get_console_context(request)
    if "error" in query:
        raise sign_in_error("declined")
    metadata = await provider.get_metadata()
    issuer = query.get("iss")  # RFC 9207: the provider that sent the response
    is_required = metadata.authorization_response_iss_parameter_supported
    if (issuer is not None or is_required) and issuer != provider.issuer:
        raise sign_in_error("issuer")
    redirect_uri = _redirect_uri(request, context.settings)
    text = await provider.exchange_code(query.get(_CODE, ""), redirect_uri, flow.verifier)
    return await check_id_token(
        provider, text, flow.nonce, await get_current_time(context.database)
    )


async def _open_session(
    context: ConsoleContext, request: Request, flow: SignInFlow, token: "IdToken"
) -> tuple[NewSessionCookie, SignInResult]:
    """Create a session with the role in the claims. Each sign-in can be completed only once."""
    settings, database = context.settings, context.database
    claim = token.claims.get(settings.oidc_claim)
    role = find_highest_role(parse_claim_roles(settings.oidc_roles), claim)
    if role is None:
        async with database.transaction() as tx:
            await identities_store.end_role(tx, token.issuer, token.subject)
        raise sign_in_error("no_role")
    sign_in = NewSignIn(
        id=database.id_generator.new_id(),
        issuer=token.issuer,
        subject=token.subject,
        name=_make_operator_name(token),
        role=role,
    )
    digest = context.encryption.digest(f"completed console sign-in:{flow.state}")
    async with database.transaction() as tx:
        if not await identities_store.complete_sign_in(tx, digest, VALIDITY_S):
            raise sign_in_error("replayed")
        identity = await identities_store.sign_in(tx, sign_in)
        if identity is None:
            raise sign_in_error("blocked")
        if identity.role is not identity.previous_role:
            await _record_sign_in(tx, identity, token)
        holder = SessionHolder(identity_id=identity.id)
        return await add_session(context, tx, request, holder), identity


async def _record_sign_in(tx: Tx, identity: SignInResult, token: "IdToken") -> None:
    """Record that the provider's claims created an operator or changed an operator's role."""
    details: Mapping[str, Any] = {
        "issuer": token.issuer,
        "subject": token.subject,
        "role": identity.role,
        "previous_role": identity.previous_role,
    }
    await audit_store.add(
        tx,
        actor_name=identity.name,
        reason="signed in with OpenID Connect",
        action="operator.sign-in",
        merchant_id=None,
        details=details,
    )


def _make_operator_name(token: "IdToken") -> str:
    """Return a readable name, made unique by a hash of the issuer and the subject."""
    claims = token.claims
    email = claims.get("email") if claims.get("email_verified") is True else None
    labels = (email, claims.get("preferred_username"), token.subject)
    label = next(label for label in labels if isinstance(label, str) and label.strip())
    plain = unicodedata.normalize("NFKC", label[:_LABEL_CHARS_MAX])
    printable = "".join(char for char in plain if char.isprintable() and char not in "/ ")
    digest = hashlib.sha256(f"{token.issuer}\x00{token.subject}".encode()).hexdigest()
    return f"{IDENTITY_PREFIX}{printable[:_LABEL_CHARS_MAX]}/{digest[:_DIGEST_CHARS]}"


def _require_provider(context: ConsoleContext) -> IdentityProvider:
    if context.identity_provider is None:
        raise NotFoundError("no such page")
    return context.identity_provider


def _redirect_uri(request: Request, settings: Settings) -> str:
    return get_own_origin(request, settings) + _CALLBACK


def _make_flow_cookie(settings: Settings) -> SignInCookie:
    """Return the sign-in cookie: `SameSite=Lax`, because the callback is a cross-site redirect."""
    is_secure = bool(settings.console_base)
    return SignInCookie("payintent-console-sign-in", is_secure, VALIDITY_S, same_site="lax")
