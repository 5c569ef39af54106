"""Panels of the overview and the gateways."""

from tools.dashboards.queries import Panel, most, quantiles, rate

_API = 'route=~"/v1/.*"'
_REQUESTS = "payintent_http_request_seconds"
_OLDEST = {"{{kind}}": f"{most('payintent_case_oldest_seconds', 'kind')} > 0"}
_OPEN = {"{{kind}}": f"sum by (kind) ({most('payintent_cases_open', 'kind, provider')}) > 0"}

OVERVIEW = [
    Panel(
        "Completed payments by result", "ops", {"{{end}}": rate("payintent_payments_total", "end")}
    ),
    Panel(
        "Share of paid payments",
        "percentunit",
        {
            "paid": rate("payintent_payments_total", match='end="PAID"')
            + " / "
            + rate("payintent_payments_total")
        },
    ),
    Panel(
        "Captures and refunds",
        "ops",
        {
            "captures": rate("payintent_captures_total"),
            "{{of}} refunds": rate("payintent_refunds_total", "of"),
        },
    ),
    Panel("Requests by status", "reqps", {"{{status}}": rate(f"{_REQUESTS}_count", "status")}),
    Panel("API response time", "s", quantiles(_REQUESTS, _API)),
    Panel(
        "Slowest routes (p95)",
        "s",
        {
            "{{method}} {{route}}": "topk(10, histogram_quantile(0.95, "
            f"{rate(f'{_REQUESTS}_bucket', 'route, method, le', _API)}))"
        },
    ),
    Panel(
        "Oldest overdue work",
        "s",
        {
            "PROCESSING": most("payintent_processing_oldest_seconds"),
            "PENDING past its deadline": most("payintent_pending_overdue_seconds"),
            "webhook": most("payintent_webhook_overdue_seconds"),
            "mail": most("payintent_mail_overdue_seconds"),
        },
    ),
    Panel("Open cases", "short", _OPEN),
    Panel("Oldest open case", "s", _OLDEST),
    Panel(
        "Errors (expected: 0)",
        "short",
        {
            "ledger accounts that do not match": most("payintent_ledger_imbalance_accounts"),
            "request errors": "sum(increase(payintent_bugs_total[1h]))",
            "worker step errors": "sum(increase(payintent_worker_failures_total[1h]))",
        },
    ),
    Panel(
        "Reconciliation",
        "short",
        {
            "{{status}}, last day": "max by (status) (payintent_reconciliation_runs)",
            "{{status}}": "sum by (status) (increase(payintent_reconciliation_ended_total[1h]))",
            "{{source}} failed": "sum by (source) "
            "(increase(payintent_reconciliation_source_failures_total[1h]))",
        },
    ),
    Panel(
        "Shed requests",
        "reqps",
        {
            "shed, {{lane}}": rate("payintent_requests_shed_total", "lane"),
            "client disconnected, {{lane}}": rate("payintent_requests_abandoned_total", "lane"),
        },
    ),
    Panel(
        "Unreadable viewer addresses",
        "reqps",
        {"{{reason}}": rate("payintent_viewer_addresses_unreadable_total", "reason")},
    ),
    Panel(
        "Authentication failures",
        "reqps",
        {
            "above the limit, {{holder}}": rate(
                "payintent_authentication_attempts_refused_total", "holder"
            ),
            "{{holder}} {{reason}}": rate(
                "payintent_authentication_failures_total", "holder, reason"
            ),
            "identity provider, {{request}}": rate(
                "payintent_oidc_provider_failures_total", "request"
            ),
        },
    ),
    Panel(
        "Processes",
        "short",
        {
            "{{job}} {{state}}": "sum by (job, state) (payintent_processes)",
            "{{job}} exited": "sum by (job) (increase(payintent_process_ends_total[1h]))",
            "{{job}} reachable": 'sum by (job) (up{job=~"payintent-.*"})',
        },
    ),
]

GATEWAYS = [
    Panel(
        "Completed payments by result",
        "ops",
        {"{{provider}} {{end}}": rate("payintent_payments_total", "provider, end")},
    ),
    Panel(
        "Share of paid payments",
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
            "status {{status}}": rate(
                f"{_REQUESTS}_count", "status", 'route="/v1/callbacks/{provider}/{account_id}"'
            ),
            "invalid signature, {{provider}}": rate(
                "payintent_callbacks_refused_total", "provider"
            ),
        },
    ),
    Panel(
        "Callback response time",
        "s",
        quantiles(_REQUESTS, 'route="/v1/callbacks/{provider}/{account_id}"'),
    ),
    Panel(
        "Method selection time, including the gateway",
        "s",
        quantiles(_REQUESTS, 'route="/v1/checkout/{checkout_id}/quotes",method="POST"'),
    ),
    Panel(
        "Outages and throttling",
        "ops",
        {
            "outages, {{channel}}": rate("payintent_gateway_outages_total", "channel"),
            "throttled, {{channel}}": rate("payintent_gateway_throttled_total", "channel"),
            "rejected buyer calls": rate("payintent_buyer_calls_refused_total"),
            "slow responses, {{channel}}": rate("payintent_gateway_slow_answers_total", "channel"),
        },
    ),
]
