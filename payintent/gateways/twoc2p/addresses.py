"""URLs of 2C2P: its payment API, pages and maintenance API have different hosts."""

LIVE, SANDBOX = "https://pgw.2c2p.com", "https://sandbox-pgw.2c2p.com"
#: The payment pages, by the base URL of the payment API.
PAGE_ORIGINS = {
    LIVE: "https://pgw-ui.2c2p.com",
    SANDBOX: "https://sandbox-pgw-ui.2c2p.com",
}
MAINTENANCE_PATH = "/PaymentAction/2.0/action"
#: The maintenance API for refunds, by the base URL of the payment API.
MAINTENANCE_URLS = {
    LIVE: f"https://t.2c2p.com{MAINTENANCE_PATH}",
    SANDBOX: f"https://demo2.2c2p.com/2C2PFrontend{MAINTENANCE_PATH}",
}
#: Indonesia's maintenance API. The account does not show its country, so the operator must set
#: `maintenance_url`.
INDONESIA = "https://pgwcore.dp.alipay.com"
ORIGINS = frozenset(
    {
        *(LIVE, SANDBOX, INDONESIA, *PAGE_ORIGINS.values()),
        *("https://t.2c2p.com", "https://demo2.2c2p.com"),
    }
)
