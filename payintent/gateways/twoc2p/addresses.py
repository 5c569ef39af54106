"""Where 2C2P is: its payment API, its pages and its maintenance API are at hosts of their own."""

LIVE, SANDBOX = "https://pgw.2c2p.com", "https://sandbox-pgw.2c2p.com"
#: By the base URL of the payment API: where buyers pay.
PAGE_ORIGINS = {
    LIVE: "https://pgw-ui.2c2p.com",
    SANDBOX: "https://sandbox-pgw-ui.2c2p.com",
}
MAINTENANCE_PATH = "/PaymentAction/2.0/action"
#: By the base URL of the payment API: where refunds go.
MAINTENANCE_URLS = {
    LIVE: f"https://t.2c2p.com{MAINTENANCE_PATH}",
    SANDBOX: f"https://demo2.2c2p.com/2C2PFrontend{MAINTENANCE_PATH}",
}
#: Indonesia's maintenance API. Nothing in an account shows that it is Indonesian, so
#: `maintenance_url` names it.
INDONESIA = "https://pgwcore.dp.alipay.com"
ORIGINS = frozenset(
    {
        *(LIVE, SANDBOX, INDONESIA, *PAGE_ORIGINS.values()),
        *("https://t.2c2p.com", "https://demo2.2c2p.com"),
    }
)
