"""The shop's orders."""

from django.conf import settings
from django.db import models
from django.db.models import Q


class Order(models.Model):
    """An order, with the payment of its latest attempt."""

    class Status(models.TextChoices):
        """The status of an order; a paid order never changes again."""

        WAITING = "waiting"
        UNPAID = "unpaid"
        PAID = "paid"

    id = models.UUIDField(primary_key=True)
    attempt = models.PositiveIntegerField(default=1)  # part of the idempotency key
    payment_id = models.CharField(max_length=64, unique=True, null=True)  # noqa: DJ001 - several orders may have no payment
    amount = models.CharField(max_length=40, default="1590.00")  # in the service's format
    currency = models.CharField(max_length=3, default="THB")
    status = models.CharField(max_length=10, default=Status.WAITING)
    handed_out = models.PositiveIntegerField(default=0)  # the number of deliveries

    class Meta:
        """A constraint that prevents a second delivery."""

        constraints = (
            models.CheckConstraint(condition=Q(handed_out__lte=1), name="order_handed_out"),
        )

    def __str__(self) -> str:
        """Return the order's display name."""
        return f"Order {self.id}"

    @property
    def page(self) -> str:
        """Return the path of the page to which the buyer returns."""
        return f"/orders/{self.id}"

    @property
    def return_url(self) -> str | None:
        """Return the page's URL if `SHOP_URL` is set. Its origin must be registered."""
        return settings.SHOP_URL + self.page if settings.SHOP_URL else None
