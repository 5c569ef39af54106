"""Messages of 2C2P's payment API, with the field names of the wire."""

from typing import Annotated

from msgspec import Meta, Raw, Struct

_Code = Annotated[str, Meta(pattern=r"^[0-9]{4}\Z")]


class TwoC2pEnvelope(Struct, frozen=True):
    payload: str


class TwoC2pToken(Struct, frozen=True):
    respCode: _Code  # noqa: N815 - the wire's names, here and below
    respDesc: str | None = None  # noqa: N815
    webPaymentUrl: str | None = None  # noqa: N815


class TwoC2pPayment(Struct, frozen=True):
    respCode: _Code  # noqa: N815
    respDesc: str | None = None  # noqa: N815
    merchantID: str | None = None  # noqa: N815
    invoiceNo: str | None = None  # noqa: N815
    amount: Raw = Raw(b"")
    currencyCode: str | None = None  # noqa: N815
    tranRef: str | None = None  # noqa: N815
    userDefined1: str | None = None  # noqa: N815
