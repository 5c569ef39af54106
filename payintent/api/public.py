"""Routes without a key: countries, chains, on-ramp orders."""

from functools import lru_cache
from hashlib import sha256

from starlette.requests import Request
from starlette.responses import Response

from payintent.api import schemas
from payintent.api.context import get_context
from payintent.api.etag import etag_response
from payintent.api.request_body import read_json
from payintent.domain.countries import COUNTRY_NAMES
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.domain.web_origin import web_origin
from payintent.json_format import encode_json
from payintent.operations.validation import check_iso_country

_COUNTRIES_MAX_AGE_S = 3600


async def countries(request: Request) -> Response:
    body, etag = _countries(web_origin(get_context(request).service.settings.api_base))
    headers = {"Cache-Control": f"public, max-age={_COUNTRIES_MAX_AGE_S}"}
    return etag_response(request, body, etag, headers)


async def onramp_order(request: Request) -> Response:
    """`POST /v1/onramp/orders`: checks the country's restriction; orders are not taken yet."""
    service = get_context(request).service
    body = await read_json(request, schemas.ONRAMP, service.settings.body_bytes_max)
    check_iso_country(body.country)
    if body.country in (await service.policies.restrictions()).onramp:
        raise RefusedError(
            ErrorCode.UNSUPPORTED_COUNTRY, f"on-ramp orders are not possible in {body.country!r}"
        )
    raise RefusedError(ErrorCode.NOT_IMPLEMENTED, "on-ramp orders are not implemented")


@lru_cache(maxsize=1)  # a process has one origin
def _countries(our_origin: str | None) -> tuple[bytes, str]:
    named = sorted(COUNTRY_NAMES.items(), key=lambda item: item[1])
    listed = [
        {"country_code": code, "name": name, "metadata": _metadata(our_origin, code)}
        for code, name in named
    ]
    body = encode_json({"countries": listed})
    return body, f'"{sha256(body).hexdigest()}"'


def _metadata(our_origin: str | None, country: str) -> dict[str, str]:
    if not our_origin:  # an invalid API base: no URL can be built
        return {}
    return {"image_url": f"{our_origin}/c/static/flags/{country.lower()}.svg"}
