"""Which database has which table, once an installation has several cells: all have one schema.

Decision 116 says why. A new table gets its home here.
"""

from collections.abc import Mapping
from enum import StrEnum


class TableHome(StrEnum):
    """Where the rows of a table are."""

    CONTROL = "control"  # in the control database, which is cell 0's
    COPIED = "copied"  # written in the control database alone, copied into each other cell
    CELL = "cell"  # in the cell that the id of the payment, or the merchant, leads to
    EACH = "each"  # each database has its own: what is said of it, or of a change in it


_NAMES = {
    TableHome.CONTROL: """
        cell_process completed_sign_in configuration_change console_session gateway_payout
        member member_link member_passkey member_session operator_identity operator_token
        reconciliation_balance reconciliation_blocks reconciliation_file reconciliation_run
        reconciliation_sum
        """,
    TableHome.COPIED: """
        api_key callback_secret cell chain chain_contract chain_token fraud_rule merchant
        merchant_cell payment_method provider provider_account rate_limit restriction
        ring_key tax_rate
        """,
    TableHome.CELL: """
        api_call attempt buyer_attempt buyer_call_state callback capture catalog_shown cell_transfer
        chain_cursor chain_hint chain_receipt chain_refund chain_refund_try chain_sighting checkout
        delivery dispute endpoint_outage event event_feed figure_mark fraud_decision gateway_call
        gateway_outage hourly_figure idempotency ledger_entry mail money_case payment payout
        rate_state refund session statement statement_close test_clock test_refund test_session
        """,
    TableHome.EACH: """
        audit configuration_copy configuration_version installation proposal schema_migration
        """,
}

TABLE_HOMES: Mapping[str, TableHome] = {
    name: home for home, names in _NAMES.items() for name in names.split()
}
