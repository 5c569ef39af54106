"""What an operator looks at first, and what is known of gateways."""

from tools.dashboards.queries import Panel, most, quantiles, rate

_API = 'route=~"/v1/.*"'
_REQUESTS = "payintent_http_request_seconds"
_OPEN = {"{{kind}}": f"sum by (kind) ({most('payintent_cases_open', 'kind, provider')}) > 0"}

OVERVIEW = [
    Panel("Payments that ended", "ops", {"{{end}}": rate("payintent_payments_total", "end")}),
    Panel(
        "Share of payments that were paid",
        "percentunit",
        {
            "paid": rate("payintent_payments_total", match='end="PAID"')
            + " / "
            + rate("payintent_payments_total")
        },
    ),
    Panel(
        "Money moves",
        "ops",
        {
            "captures": rate("payintent_captures_total"),
            "refunds of {{of}}s": rate("payintent_refunds_total", "of"),
        },
    ),
    Panel("Requests by status", "reqps", {"{{status}}": rate(f"{_REQUESTS}_count", "status")}),
    Panel("Time of the API's answers", "s", quantiles(_REQUESTS, _API)),
    Panel(
        "Slowest routes (p95)",
        "s",
        {
            "{{method}} {{route}}": "topk(10, histogram_quantile(0.95, "
            f"{rate(f'{_REQUESTS}_bucket', 'route, method, le', _API)}))"
        },
    ),
    Panel(
        "Waits longest",
        "s",
        {
            "PROCESSING": most("payintent_processing_oldest_seconds"),
            "PENDING past its time": most("payintent_pending_overdue_seconds"),
            "webhook past its time": most("payintent_webhook_overdue_seconds"),
            "mail": most("payintent_mail_overdue_seconds"),
        },
    ),
    Panel("Open cases", "short", _OPEN),
    Panel(
        "Must be 0",
        "short",
        {
            "accounts of the ledger that differ": most("payintent_ledger_imbalance_accounts"),
            "defects": "sum(increase(payintent_bugs_total[1h]))",
            "defects of workers": "sum(increase(payintent_worker_failures_total[1h]))",
        },
    ),
    Panel(
        "Gateways' lists",
        "short",
        {
            "{{status}}, within a day": "max by (status) (payintent_reconciliation_runs)",
            "{{status}}": "sum by (status) (increase(payintent_reconciliation_ended_total[1h]))",
            "{{source}} not read": "sum by (source) "
            "(increase(payintent_reconciliation_source_failures_total[1h]))",
        },
    ),
    Panel(
        "Refused unread",
        "reqps",
        {
            "shed, {{lane}}": rate("payintent_requests_shed_total", "lane"),
            "hung up, {{lane}}": rate("payintent_requests_abandoned_total", "lane"),
        },
    ),
    Panel(
        "Viewers without a readable address",
        "reqps",
        {"{{reason}}": rate("payintent_viewer_addresses_unreadable_total", "reason")},
    ),
    Panel(
        "Failed authentications",
        "reqps",
        {
            "beyond the limit, {{holder}}": rate(
                "payintent_authentication_attempts_refused_total", "holder"
            ),
            "{{holder}} {{reason}}": rate(
                "payintent_authentication_failures_total", "holder, reason"
            ),
            "the provider cannot be asked, {{reason}}": rate(
                "payintent_oidc_provider_failures_total", "reason"
            ),
        },
    ),
    Panel(
        "Processes",
        "short",
        {
            "{{job}} {{state}}": "sum by (job, state) (payintent_processes)",
            "{{job}} died": "sum by (job) (increase(payintent_process_ends_total[1h]))",
            "{{job}} answers": 'sum by (job) (up{job=~"payintent-.*"})',
        },
    ),
]

GATEWAYS = [
    Panel(
        "Payments that ended",
        "ops",
        {"{{provider}} {{end}}": rate("payintent_payments_total", "provider, end")},
    ),
    Panel(
        "Share of payments that were paid",
        "percentunit",
        {
            "{{provider}}": rate("payintent_payments_total", "provider", 'end="PAID"')
            + " / "
            + rate("payintent_payments_total", "provider")
        },
    ),
    Panel("Captures", "ops", {"{{provider}}": rate("payintent_captures_total", "provider")}),
    Panel(
        "Refunds", "ops", {"{{provider}} {{of}}": rate("payintent_refunds_total", "provider, of")}
    ),
    Panel(
        "Open cases",
        "short",
        {
            "{{provider}}": f"sum by (provider) "
            f"({most('payintent_cases_open', 'kind, provider')}) > 0"
        },
    ),
    Panel(
        "Callbacks",
        "reqps",
        {
            "answered {{status}}": rate(
                f"{_REQUESTS}_count", "status", 'route="/v1/callbacks/{provider}/{account_id}"'
            ),
            "not signed well, {{provider}}": rate("payintent_callbacks_refused_total", "provider"),
        },
    ),
    Panel(
        "Time to answer a callback",
        "s",
        quantiles(_REQUESTS, 'route="/v1/callbacks/{provider}/{account_id}"'),
    ),
    Panel(
        "Time to select, with the gateway's answer",
        "s",
        quantiles(_REQUESTS, 'route="/v1/checkout/{checkout_id}/quotes",method="POST"'),
    ),
    Panel(
        "Held back",
        "ops",
        {
            "outages, {{channel}}": rate("payintent_gateway_outages_total", "channel"),
            "throttled, {{channel}}": rate("payintent_gateway_throttled_total", "channel"),
            "buyers' calls without room": rate("payintent_buyer_calls_refused_total"),
            "slow answers, {{channel}}": rate("payintent_gateway_slow_answers_total", "channel"),
        },
    ),
]
