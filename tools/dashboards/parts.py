"""What is known of chains, webhooks and the database."""

from tools.dashboards.queries import Panel, most, quantiles, rate

_REQUESTS = "payintent_http_request_seconds"
CHAINS = [
    Panel("Watched", "short", {"{{chain}}": most("payintent_chain_watched", "chain")}),
    Panel("Halted", "short", {"{{chain}}": most("payintent_chain_halted", "chain")}),
    Panel("Behind the head", "s", {"{{chain}}": most("payintent_chain_lag_seconds", "chain")}),
    Panel(
        "Blocks behind the head",
        "short",
        {
            "{{chain}} final": f"{most('payintent_chain_head', 'chain')} - "
            f"{most('payintent_chain_final', 'chain')}",
            "{{chain}} read": f"{most('payintent_chain_head', 'chain')} - "
            f"{most('payintent_chain_cursor', 'chain')}",
        },
    ),
    Panel(
        "Payments that wait",
        "short",
        {
            "{{chain}} for a watcher": most("payintent_chain_waiting", "chain"),
            "{{chain}} not final in time": most("payintent_chain_overdue", "chain"),
        },
    ),
    Panel(
        "Final transfers",
        "ops",
        {"{{chain}} {{disposition}}": rate("payintent_chain_receipts_total", "chain, disposition")},
    ),
    Panel(
        "Final refunds",
        "ops",
        {"{{chain}} {{disposition}}": rate("payintent_chain_refunds_total", "chain, disposition")}
        | {"{{chain}} waits, {{why}}": rate("payintent_chain_refunds_waiting_total", "chain, why")},
    ),
    Panel(
        "Gas left for automatic refunds today",
        "short",
        {"{{chain}}": most("payintent_chain_auto_refund_gas_left", "chain")},
    ),
    Panel(
        "Endpoints that fail",
        "ops",
        {
            "{{chain}} {{endpoint}} {{kind}}": rate(
                "payintent_chain_rpc_errors_total", "chain, endpoint, kind"
            ),
            "{{chain}} looks": rate("payintent_chain_failures_total", "chain"),
        },
    ),
    Panel(
        "Endpoints that lie",
        "ops",
        {
            "{{chain}} {{endpoint}} {{kind}}": rate(
                "payintent_chain_incidents_total", "chain, endpoint, kind"
            ),
            "{{chain}} {{what}}": rate("payintent_chain_lies_total", "chain, what"),
            "{{chain}} not proven": rate("payintent_chain_set_aside_total", "chain"),
            "{{chain}} left out": rate("payintent_chain_late_logs_total", "chain"),
        },
    ),
]

WEBHOOKS = [
    Panel("Attempts", "ops", {"{{outcome}}": rate("payintent_webhook_attempts_total", "outcome")}),
    Panel("From the event to its arrival", "s", quantiles("payintent_webhook_delay_seconds")),
    Panel("Time of an attempt", "s", quantiles("payintent_webhook_attempt_seconds")),
    Panel("Not arrived", "short", {"{{state}}": most("payintent_deliveries", "state")}),
    Panel("Past its time", "s", {"webhook": most("payintent_webhook_overdue_seconds")}),
    Panel(
        "Feed of events",
        "reqps",
        {"{{status}}": rate(f"{_REQUESTS}_count", "status", 'route="/v1/events"')},
    ),
    Panel("Mail", "ops", {"{{kind}} {{outcome}}": rate("payintent_mails_total", "kind, outcome")}),
]

DATABASE = [
    Panel(
        "Waits for a connection", "ops", {"waits": rate("payintent_database_wait_seconds_count")}
    ),
    Panel("Time of a wait", "s", quantiles("payintent_database_wait_seconds")),
    Panel(
        "Requests refused",
        "reqps",
        {"{{code}}": rate("payintent_database_refusals_total", "code")},
    ),
    Panel(
        "Statements of lists",
        "ops",
        {"{{server}}": rate("payintent_list_reads_total", "server")},
    ),
    Panel(
        "Not recorded",
        "ops",
        {
            "merchants' calls": rate("payintent_api_calls_dropped_total"),
            "requests of gateways": rate("payintent_gateway_calls_dropped_total"),
        },
    ),
    Panel(
        "Steps of workers that failed",
        "ops",
        {"{{step}}": rate("payintent_worker_failures_total", "step")},
    ),
    Panel(
        "Rows that retention took away, a worker sealed, or that do not open",
        "ops",
        {
            "{{rule}}": rate("payintent_retention_rows_total", "rule"),
            "sealed, {{table}}": rate("payintent_payer_rows_sealed_total", "table"),
            "unreadable, {{table}}": rate("payintent_payer_rows_unreadable_total", "table"),
        },
    ),
    Panel(
        "Processor",
        "percentunit",
        {"{{job}} {{instance}}": rate("process_cpu_seconds_total", "job, instance")},
    ),
    Panel(
        "Memory",
        "bytes",
        {"{{job}} {{instance}}": "sum by (job, instance) (process_resident_memory_bytes)"},
    ),
    Panel(
        "Open files", "short", {"{{job}} {{instance}}": "max by (job, instance) (process_open_fds)"}
    ),
]
