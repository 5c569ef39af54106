"""The order of a list: newest first, or oldest first for lists of pending work."""

from typing import Annotated, Literal

from payintent.domain.errors import BadRequestError
from payintent.operations.fields import option

ListOrder = Annotated[
    Literal["newest", "oldest"],
    option("`newest` first, or `oldest` first if the list has only pending entries."),
]


def check_order(order: str, needs: str, is_pending: object) -> None:
    """Raise `BAD_REQUEST` for the order `oldest` if the list has entries that are not pending."""
    if order == "oldest" and not is_pending:
        raise BadRequestError(f"order `oldest` needs {needs}")


def check_pages(order: str, before: object, after: object) -> None:
    """Raise `BAD_REQUEST` if the cursor belongs to the opposite order."""
    name, cursor = ("before", before) if order == "oldest" else ("after", after)
    if cursor is not None:
        raise BadRequestError(f"{name} cannot be combined with the order `{order}`")
