"""Links from values in results, by field name or by the prefix of an id."""

from urllib.parse import quote

from payintent.domain import ids

_BY_NAME = {
    "merchant_id": "/merchants/{}",
    "account_id": "/operations/account/show?account_id={}",
    "event_id": "/webhooks/events/{}",
}
_BY_PREFIX = {
    ids.PAYMENT: "/payments/{}",
    ids.REFUND: "/refunds/{}",
    ids.CASE: "/cases/{}",
    ids.APPROVAL: "/approvals/{}",
}


def find_link(value: object, name: str) -> str | None:
    if isinstance(value, str):
        prefix, underscore, _ = value.partition("_")
        if underscore and prefix in _BY_PREFIX and ids.parse_id(prefix, value) is not None:
            return _BY_PREFIX[prefix].format(quote(value))
    if name in _BY_NAME and isinstance(value, str | int) and value != "":
        return _BY_NAME[name].format(quote(str(value)))
    return None
