"""The tools of a shop that only look: none of them changes anything."""

from __future__ import annotations

from typing import Any

from env_server.env import ToolEnv, ToolError, tool
from env_server.envs.orders_books import Books

PAGE = 20
"""Most records that a search returns."""

FEWEST_CHARACTERS = 3
"""Of a text that is searched for, so that no search lists all there is."""


class Lookups(ToolEnv):
    """A shop whose books can be read."""

    _books: Books

    @tool
    def find_customers(self, text: str) -> list[dict[str, Any]]:
        """Finds customers by a part of their name, ordered by id.

        At most 20 are returned, with id, name and email. Several customers may have one name.

        Args:
            text: The part, of 3 characters or more; capitals do not matter.
        """
        wanted = _wanted(text)
        found = [
            {"id": row.id, "name": row.name, "email": row.email}
            for row in self._books.customers()
            if wanted in row.name.casefold()
        ]
        return found[:PAGE]

    @tool
    def get_customer(self, customer_id: int) -> dict[str, Any]:
        """Tells name, email and home address of a customer.

        Args:
            customer_id: Id of the customer.
        """
        return self._books.customer(customer_id)._asdict()

    @tool
    def find_products(self, text: str) -> list[dict[str, Any]]:
        """Finds products by a part of their name, ordered by id.

        At most 20 are returned, with id, name, category and the price of a piece today.

        Args:
            text: The part, of 3 characters or more; capitals do not matter.
        """
        wanted = _wanted(text)
        found = [
            {"id": id, "name": name, "category": category, "price_cents": price_cents}
            for id, name, category, price_cents, _ in self._books.products()
            if wanted in name.casefold()
        ]
        return found[:PAGE]

    @tool
    def list_orders(self, customer_id: int) -> list[dict[str, Any]]:
        """Lists the orders of a customer with day and status, the newest first.

        Args:
            customer_id: Id of the customer.
        """
        return [
            {"order_id": order.id, "placed_on": order.placed_on, "status": order.status}
            for order in self._books.orders_of(self._books.customer(customer_id))
        ]

    @tool
    def get_order(self, order_id: int) -> dict[str, Any]:
        """Tells who placed an order, its status, where it goes to, and its lines.

        The status is placed, packed, shipped, delivered or cancelled. A line has a number, a
        product, a quantity and what was paid for a piece, which need not be the price of today.

        Args:
            order_id: Id of the order.
        """
        order = self._books.order(order_id)
        lines = [line._asdict() for line in self._books.lines(order)]
        return {**order._asdict(), "lines": lines}

    @tool
    def query_logistics(self, order_id: int) -> dict[str, Any] | None:
        """Tells where the parcel of an order is; null where it has not left the house.

        The status is ready, in_transit, out_for_delivery, delivered or lost.

        Args:
            order_id: Id of the order.
        """
        shipment = self._books.shipment(self._books.order(order_id))
        return None if shipment is None else shipment._asdict()

    @tool
    def list_refunds(self, order_id: int) -> list[dict[str, Any]]:
        """Lists what has been paid back for an order, by line.

        Args:
            order_id: Id of the order.
        """
        refunds = self._books.refunds(self._books.order(order_id))
        return [refund._asdict() for refund in refunds]

    @tool
    def refund_policy(self, category: str) -> dict[str, Any]:
        """Tells for how many days after its delivery a product can be refunded, and what day it is.

        0 days: products of this category are never refunded, unless their parcel was lost.

        Args:
            category: Category of the product.
        """
        return {**self._books.policy(category)._asdict(), "today": self._books.today()}

    @tool
    def check_stock(self, product_id: int) -> int | None:
        """Tells how many pieces of a product are free; null where nobody has counted them.

        Args:
            product_id: Id of the product.
        """
        return self._books.product(product_id).on_hand


def _wanted(text: str) -> str:
    if len(text.strip()) < FEWEST_CHARACTERS:
        raise ToolError(f"expected a text of {FEWEST_CHARACTERS} characters or more")
    return text.strip().casefold()
