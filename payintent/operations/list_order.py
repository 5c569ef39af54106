"""What comes first in a list: the newest, or of what waits also what has waited longest."""

from typing import Annotated, Literal

from payintent.domain.errors import BadRequestError
from payintent.operations.fields import option

ListOrder = Annotated[
    Literal["newest", "oldest"],
    option("What comes first; `oldest`, what has waited longest, of what waits alone."),
]


def check_order(order: str, needs: str, given: object) -> None:
    """Refuse (`BAD_REQUEST`) the oldest first where the list is not of what waits."""
    if order == "oldest" and not given:
        raise BadRequestError(f"order: the oldest first needs {needs}")


def check_pages(order: str, before: object, after: object) -> None:
    """Refuse (`BAD_REQUEST`) the next page of the other order."""
    name, unfit = ("before", before) if order == "oldest" else ("after", after)
    if unfit is not None:
        raise BadRequestError(f"{name}: does not go with the {order} first")
