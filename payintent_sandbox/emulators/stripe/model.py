"""Data that localstripe lacks: account keys, object owners and test cards."""

from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Keys:
    """The secret and the publishable key of an account."""

    secret: str = field(repr=False)
    publishable: str


@dataclass(frozen=True, slots=True)
class Card:
    """A test card: its number, and the outcome of payments and refunds with it."""

    number: str
    label: str
    code: str | None = None  # the error code if the card is declined
    decline_code: str | None = None
    pending_refunds: bool = False
    disputed: bool = False  # refunds are then refused


#: Stripe's test numbers; localstripe decides which numbers need 3-D Secure.
CARDS = {
    card.number: card
    for card in (
        Card("4242424242424242", "pays"),
        Card("4000000000000002", "is declined", "card_declined", "generic_decline"),
        Card("4000000000009995", "has insufficient funds", "card_declined", "insufficient_funds"),
        Card("4000000000000069", "has expired", "expired_card"),
        Card("4000000000000127", "has an incorrect CVC", "incorrect_cvc"),
        Card("4000000000000119", "causes a processing error", "processing_error"),
        Card("4000002500003155", "requires 3-D Secure"),
        Card("4000000000007726", "pays; refunds stay pending", pending_refunds=True),
        Card("4000000000000259", "pays; is then disputed, so refunds are refused", disputed=True),
    )
}


class RefusalError(Exception):
    """A rejected request, with an HTTP status and Stripe's error object."""

    def __init__(self, status: int, message: str, **words: Any) -> None:
        super().__init__(message)
        self.status = status
        self.error: Json = {"type": "invalid_request_error", "message": message} | words


def missing(name: str) -> RefusalError:
    """Return the error for an object that is missing or belongs to a different account."""
    return RefusalError(404, f"No such object: '{name}'", code="resource_missing", param="id")


@dataclass(slots=True)
class AccountRecords:
    """The accounts and the objects that they own."""

    accounts: tuple[Keys, ...]  # if empty, any key is accepted, as in localstripe
    owners: dict[str, str] = field(default_factory=dict[str, str])  # secret keys by object id
    paid_with: dict[str, Card] = field(default_factory=dict[str, Card])  # by payment intent id

    def check(self, secret: str) -> None:
        """Reject a secret key that does not belong to any account."""
        secrets = {keys.secret for keys in self.accounts}
        if not secret or (secrets and secret not in secrets):
            raise RefusalError(401, "Invalid API Key provided")

    def check_owner(self, secret: str, name: str) -> None:
        """Reject an object that belongs to a different account."""
        if self.owners.get(name, secret) != secret:
            raise missing(name)

    def owner(self, intent_id: str, publishable: str) -> str:
        """Return the secret key of an intent's account, if the publishable key matches."""
        secret = self.owners.get(intent_id)
        if secret is None:
            raise missing(intent_id)
        if self.accounts and Keys(secret, publishable) not in self.accounts:
            raise RefusalError(401, "Invalid API Key provided")
        return secret
