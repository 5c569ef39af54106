"""The products that the shop sells."""

from dataclasses import dataclass
from decimal import Decimal

QUANTITY_MAX = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """A product with its price."""

    sku: str
    name: str
    detail: str
    price: Decimal
    currency: str
    colour: str

    def amount(self, quantity: int) -> str:
        """Return the price of a quantity as the decimal string that the API accepts."""
        return str(self.price * quantity)


PRODUCTS: dict[str, Product] = {
    product.sku: product
    for product in (
        Product(
            sku="tides",
            name="Tides of the Chao Phraya",
            detail="A river atlas, cloth bound",
            price=Decimal("1590.00"),
            currency="THB",
            colour="#0b7285",
        ),
        Product(
            sku="ledgers",
            name="A Field Guide to Ledgers",
            detail="Double entry for the curious",
            price=Decimal("49.90"),
            currency="USD",
            colour="#a6401b",
        ),
        Product(
            sku="kyoto",
            name="One Hundred Mornings in Kyoto",
            detail="Photographs, in a slipcase",
            price=Decimal(2400),
            currency="JPY",
            colour="#5f3dc4",
        ),
        Product(
            sku="lanterns",
            name="Lanterns over Pingxi",
            detail="A picture book of wishes",
            price=Decimal("1200.00"),
            currency="TWD",
            colour="#8a5a00",
        ),
    )
}
