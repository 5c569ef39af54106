"""The shop's orders."""

from django.db import models


class Order(models.Model):
    """An order, with the payment of its latest attempt."""

    id = models.UUIDField(primary_key=True)
    attempt = models.PositiveIntegerField(default=1)  # part of the idempotency key
    payment_id = models.CharField(max_length=64, unique=True, null=True)  # noqa: DJ001 - several orders may have no payment
    amount = models.CharField(max_length=40)  # as the service formats it, such as 1590.00
    currency = models.CharField(max_length=3)
    status = models.CharField(max_length=10, default="waiting")

    def __str__(self) -> str:
        """Return the order's display name."""
        return f"Order {self.id}"
