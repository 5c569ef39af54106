"""`python manage.py poll`: read the payments of all open orders."""

from typing import Any

from django.core.management.base import BaseCommand

from shop.payments import poll


class Command(BaseCommand):
    """Read the payments of all open orders, because a webhook can be lost."""

    def handle(self, *_: Any, **__: Any) -> None:
        poll()
