"""Panels for chains, webhooks and the database."""

from tools.dashboards.queries import Panel, most, quantiles, rate

_REQUESTS = "payintent_http_request_seconds"
CHAINS = [
    Panel("Chain is watched", "short", {"{{chain}}": most("payintent_chain_watched", "chain")}),
    Panel("Chain is halted", "short", {"{{chain}}": most("payintent_chain_halted", "chain")}),
    Panel("Watcher lag", "s", {"{{chain}}": most("payintent_chain_lag_seconds", "chain")}),
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
        "Delayed payments",
        "short",
        {
            "{{chain}} sessions not watched": most("payintent_chain_waiting", "chain"),
            "{{chain}} payments not final in time": most("payintent_chain_overdue", "chain"),
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
        | {
            "{{chain}} not sent, {{why}}": rate(
                "payintent_chain_refunds_waiting_total", "chain, why"
            )
        },
    ),
    Panel(
        "Deposits",
        "ops",
        {
            "{{chain}} final": rate("payintent_deposits_total", "chain"),
            "{{chain}} address sweeps, {{result}}": rate(
                "payintent_deposit_sweeps_total", "chain, result"
            ),
            "{{chain}} sweeper transactions, {{result}}": rate(
                "payintent_sweep_batches_total", "chain, result"
            ),
            "{{chain}} sweeps not sent, {{why}}": rate(
                "payintent_chain_sweeps_blocked_total", "chain, why"
            ),
        },
    ),
    Panel(
        "Unswept deposits",
        "short",
        {
            "{{chain}} {{token}}": most("payintent_deposits_unswept", "chain, token"),
            "{{chain}} open addresses": most("payintent_deposit_addresses", "chain"),
            "{{chain}} sweeper's coins": most("payintent_sweeper_coins", "chain"),
            "{{chain}} waiting for a lower gas price": most("payintent_sweeps_waiting", "chain"),
        },
    ),
    Panel(
        "Age of unswept deposits",
        "s",
        {
            "{{chain}} {{token}}": most("payintent_deposits_unswept_age_seconds", "chain, token"),
            "{{chain}} pending sweep": most("payintent_sweep_pending_age_seconds", "chain"),
        },
    ),
    Panel(
        "Gas left for automatic refunds today",
        "short",
        {"{{chain}}": most("payintent_chain_auto_refund_gas_left", "chain")},
    ),
    Panel(
        "Endpoint errors",
        "ops",
        {
            "{{chain}} {{endpoint}} {{kind}}": rate(
                "payintent_chain_rpc_errors_total", "chain, endpoint, kind"
            ),
            "{{chain}} failed passes": rate("payintent_chain_failures_total", "chain"),
        },
    ),
    Panel(
        "Wrong endpoint responses",
        "ops",
        {
            "{{chain}} {{endpoint}} {{kind}}": rate(
                "payintent_chain_incidents_total", "chain, endpoint, kind"
            ),
            "{{chain}} disproved, {{what}}": rate("payintent_chain_lies_total", "chain, what"),
            "{{chain}} unproven logs": rate("payintent_chain_set_aside_total", "chain"),
            "{{chain}} omitted logs": rate("payintent_chain_late_logs_total", "chain"),
        },
    ),
]

WEBHOOKS = [
    Panel(
        "Delivery attempts",
        "ops",
        {"{{outcome}}": rate("payintent_webhook_attempts_total", "outcome")},
    ),
    Panel("Time from event to delivery", "s", quantiles("payintent_webhook_delay_seconds")),
    Panel("Attempt duration", "s", quantiles("payintent_webhook_attempt_seconds")),
    Panel("Undelivered events", "short", {"{{state}}": most("payintent_deliveries", "state")}),
    Panel("Oldest overdue delivery", "s", {"webhook": most("payintent_webhook_overdue_seconds")}),
    Panel(
        "Event feed requests",
        "reqps",
        {"{{status}}": rate(f"{_REQUESTS}_count", "status", 'route="/v1/events"')},
    ),
    Panel("Mail", "ops", {"{{kind}} {{outcome}}": rate("payintent_mails_total", "kind, outcome")}),
]

DATABASE = [
    Panel(
        "Waits for a connection", "ops", {"waits": rate("payintent_database_wait_seconds_count")}
    ),
    Panel("Time to get a connection", "s", quantiles("payintent_database_wait_seconds")),
    Panel(
        "Requests rejected because of a database outage",
        "reqps",
        {"{{code}}": rate("payintent_database_refusals_total", "code")},
    ),
    Panel(
        "List queries by server",
        "ops",
        {"{{server}}": rate("payintent_list_reads_total", "server")},
    ),
    Panel(
        "Dropped log entries",
        "ops",
        {
            "merchant API calls": rate("payintent_api_calls_dropped_total"),
            "gateway requests": rate("payintent_gateway_calls_dropped_total"),
        },
    ),
    Panel(
        "Failed worker steps",
        "ops",
        {"{{step}}": rate("payintent_worker_failures_total", "step")},
    ),
    Panel(
        "Deleted, sealed and unreadable rows",
        "ops",
        {
            "deleted, {{rule}}": rate("payintent_retention_rows_total", "rule"),
            "sealed, {{table}}": rate("payintent_payer_rows_sealed_total", "table"),
            "unreadable, {{table}}": rate("payintent_payer_rows_unreadable_total", "table"),
        },
    ),
    Panel(
        "CPU",
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
