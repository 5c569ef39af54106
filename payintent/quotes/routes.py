"""Routes for the merchant catalog, supported countries and on-ramp orders."""

from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from payintent.core.addresses import parse_web_origin
from payintent.core.countries import COUNTRY_NAMES
from payintent.core.errors import ErrorCode, RefusedError
from payintent.fraud.policy_cache import PolicyCache
from payintent.http.bodies import read_json
from payintent.http.responses import etag_response
from payintent.http.viewer import ViewerReader
from payintent.merchants.access import MerchantApi
from payintent.merchants.access_store import AuthenticatedMerchant
from payintent.operators.fields import check_iso_country
from payintent.payments import schemas
from payintent.quotes.catalog import Catalogs
from payintent.runtime.json_format import encode_json

_COUNTRIES_MAX_AGE_S = 3600


@dataclass(frozen=True, slots=True)
class CatalogRoutes:
    api: MerchantApi
    catalogs: Catalogs
    viewers: ViewerReader
    country_header: str  # set by the edge network; listed in `Vary`

    def routes(self) -> list[Route]:
        return [self.api.route("GET", "/v1/catalog", self.get_catalog)]

    async def get_catalog(self, request: Request, merchant: AuthenticatedMerchant) -> Response:
        viewer = self.viewers.get_viewer_country(request)
        catalog = await self.catalogs.get(merchant.merchant_id, viewer)
        headers = {
            "Cache-Control": "private, max-age=300",
            "Vary": f"Authorization, {self.country_header}",
        }
        return etag_response(request, catalog.body, catalog.etag, headers)


@dataclass(frozen=True, slots=True)
class PublicRoutes:
    policies: PolicyCache
    api_base: str
    body_bytes_max: int

    def routes(self) -> list[Route]:
        return [
            Route("/v1/countries", self.list_countries, methods=["GET"]),
            Route("/v1/onramp/orders", self.create_onramp_order, methods=["POST"]),
        ]

    async def list_countries(self, request: Request) -> Response:
        body, etag = _encode_countries(parse_web_origin(self.api_base))
        headers = {"Cache-Control": f"public, max-age={_COUNTRIES_MAX_AGE_S}"}
        return etag_response(request, body, etag, headers)

    async def create_onramp_order(self, request: Request) -> Response:
        """Reject the order. Only the country restrictions are implemented."""
        body = await read_json(request, schemas.ONRAMP_DECODER, self.body_bytes_max)
        check_iso_country(body.country)
        if body.country in (await self.policies.get_restrictions()).onramp:
            raise RefusedError(
                ErrorCode.UNSUPPORTED_COUNTRY,
                f"on-ramp orders are not available in {body.country!r}",
            )
        raise RefusedError(ErrorCode.NOT_IMPLEMENTED, "on-ramp orders are not implemented")


@lru_cache(maxsize=1)  # a process has a single origin
def _encode_countries(origin: str | None) -> tuple[bytes, str]:
    countries = [
        {"country_code": code, "name": name, "metadata": _make_country_metadata(origin, code)}
        for code, name in sorted(COUNTRY_NAMES.items(), key=lambda item: item[1])
    ]
    body = encode_json({"countries": countries})
    return body, f'"{sha256(body).hexdigest()}"'


def _make_country_metadata(origin: str | None, country: str) -> dict[str, str]:
    if not origin:  # the configured API base is not a valid URL
        return {}
    return {"image_url": f"{origin}/c/static/flags/{country.lower()}.svg"}
