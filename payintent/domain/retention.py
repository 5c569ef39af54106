"""Rules of what is forgotten after a time, beside what each table forgets by itself."""

from enum import StrEnum


class RetentionRule(StrEnum):
    """What a rule of retention takes away, the first named first."""

    ATTEMPTS = "attempts"  # to deliver events
    EVENTS = "events"  # that merchants were told, with their deliveries
    PAYER_ADDRESSES = "payer_addresses"  # on chains, of transfers
    PAYER_DETAILS = "payer_details"  # e-mail and metadata of payments
    PAYERS = "payers"  # who paid, and whatever else of a person a payment has left
