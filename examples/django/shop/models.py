"""What the shop keeps."""

from django.db import models


class Order(models.Model):
    """One cart that was bought, and the payment of its newest attempt."""

    id = models.UUIDField(primary_key=True)
    attempt = models.PositiveIntegerField(default=1)  # the idempotency key is made of it
    payment_id = models.CharField(max_length=64, unique=True, null=True)  # noqa: DJ001 - several orders have none
    amount = models.CharField(max_length=40)  # as the service writes it, such as 1590.00
    currency = models.CharField(max_length=3)
    status = models.CharField(max_length=10, default="waiting")

    def __str__(self) -> str:
        """Name the order for people."""
        return f"Order {self.id}"
