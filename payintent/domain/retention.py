"""Retention rules, in addition to the fixed retention of single tables."""

from enum import StrEnum


class RetentionRule(StrEnum):
    """The data that a rule erases, in the order in which the rules apply."""

    ATTEMPTS = "attempts"  # delivery attempts
    EVENTS = "events"  # with their deliveries
    PAYER_ADDRESSES = "payer_addresses"  # sender addresses of transfers on chains
    PAYER_DETAILS = "payer_details"  # e-mail addresses and metadata of payments
    PAYERS = "payers"  # payer references and all remaining personal data of payments
