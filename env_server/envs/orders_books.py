"""The books of a shop: its rows by id, as they stand after what an episode has changed.

It knows no rule but one: what is not there cannot be had. What may be done is for the tools.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from env_server.env import ToolError
from env_server.envs.orders_tables import (
    Customer,
    Line,
    Order,
    Policy,
    Product,
    Refund,
    Shipment,
    ShopKey,
)
from env_server.envs.orders_world import Changes, open_shop

MAX_ID = 2**31 - 1

Reason: TypeAlias = Literal[
    "not_found",
    "ambiguous",
    "not_on_record",
    "already_cancelled",
    "already_packed",
    "already_shipped",
    "already_refunded",
    "not_shipped",
    "not_delivered",
    "not_lost",
    "not_refundable",
    "window_closed",
    "over_paid",
    "out_of_stock",
    "nothing_to_change",
]
"""Why something cannot be done."""

REASONS: tuple[Reason, ...] = get_args(Reason)

_CUSTOMERS = "SELECT id, name, email, address FROM customers ORDER BY id"
_CUSTOMER = "SELECT id, name, email, address FROM customers WHERE id = ?"
_PRODUCTS = "SELECT id, name, category, price_cents, on_hand FROM products ORDER BY id"
_PRODUCT = "SELECT id, name, category, price_cents, on_hand FROM products WHERE id = ?"
_ORDER = (
    "SELECT id, customer_id, placed_on, status, address, cancel_reason FROM orders WHERE id = ?"
)
_ORDERS_OF = "SELECT id FROM orders WHERE customer_id = ? ORDER BY placed_on DESC, id DESC"
_LINES = (
    "SELECT order_id, line, product_id, quantity, unit_cents FROM order_lines "
    "WHERE order_id = ? ORDER BY line"
)
_SHIPMENT = (
    "SELECT order_id, carrier, tracking, status, due_on, delivered_on FROM shipments "
    "WHERE order_id = ?"
)
_REFUNDS = (
    "SELECT order_id, line, cents, made_on FROM refunds WHERE order_id = ? ORDER BY line, made_on"
)
_POLICY = "SELECT category, refund_days FROM policies WHERE category = ?"
_DAY = "SELECT day FROM today"
_AGE = "SELECT date_diff('day', CAST(? AS DATE), CAST(day AS DATE)) FROM today"


class Refused(ToolError):
    """The rules of the shop do not allow it.

    Attributes:
        reason: Why, in one word.
    """

    def __init__(self, reason: Reason, message: str) -> None:
        """Puts the reason before the message, for the agent."""
        super().__init__(f"{reason}: {message}")
        self.reason: Reason = reason


class Reserved(NamedTuple):
    """Pieces of a product that are put aside for a customer."""

    product_id: int
    customer_id: int
    quantity: int


class Books:
    """Reads rows of a shop, and notes what changes."""

    def __init__(self, key: ShopKey) -> None:
        """Opens the books of a shop as it was drawn."""
        self.world = open_shop(key)
        self.changes = Changes()

    def customers(self) -> list[Customer]:
        """All customers, by id."""
        return [Customer(*row) for row in self.world.rows(_CUSTOMERS)]

    def products(self) -> list[Product]:
        """All products, by id."""
        return [self._now(Product(*row)) for row in self.world.rows(_PRODUCTS)]

    def today(self) -> str:
        """The day that it is."""
        [(day,)] = self.world.rows(_DAY)
        return str(day)

    def days_since(self, day: str) -> int:
        """How many days ago a day was."""
        [(days,)] = self.world.rows(_AGE, day)
        return int(days)

    def customer(self, customer_id: int) -> Customer:
        """A customer.

        Raises:
            Refused: There is none of this id.
        """
        return Customer(*self._row(_CUSTOMER, "customer", customer_id))

    def product(self, product_id: int) -> Product:
        """A product.

        Raises:
            Refused: There is none of this id.
        """
        return self._now(Product(*self._row(_PRODUCT, "product", product_id)))

    def policy(self, category: str) -> Policy:
        """The refund policy of a category.

        Raises:
            Refused: There is no such category.
        """
        rows = self.world.rows(_POLICY, category)
        if not rows:
            raise Refused("not_found", "no product is of this category; find_products names them")
        return Policy(*rows[0])

    def order(self, order_id: int) -> Order:
        """An order.

        Raises:
            Refused: There is none of this id.
        """
        row = Order(*self._row(_ORDER, "order", order_id))
        return self.changes.read("orders", str(order_id), row)

    def orders_of(self, customer: Customer) -> list[Order]:
        """The orders of a customer, the newest first."""
        return [self.order(order_id) for (order_id,) in self.world.rows(_ORDERS_OF, customer.id)]

    def lines(self, order: Order) -> list[Line]:
        """The lines of an order."""
        rows = [Line(*row) for row in self.world.rows(_LINES, order.id)]
        return [self.changes.read("order_lines", _of(row), row) for row in rows]

    def line(self, order: Order, number: int) -> Line:
        """One line of an order.

        Raises:
            Refused: It has no such line.
        """
        for line in self.lines(order):
            if line.line == number:
                return line
        raise Refused("not_found", f"order {order.id} has no line {str(number)[:80]}")

    def shipment(self, order: Order) -> Shipment | None:
        """The parcel of an order; None where it has not left the house."""
        rows = self.world.rows(_SHIPMENT, order.id)
        if not rows:
            return None
        return self.changes.read("shipments", str(order.id), Shipment(*rows[0]))

    def refunds(self, order: Order) -> list[Refund]:
        """What was paid back for an order until now, by line; that of today is the last of one."""
        found = [Refund(*row) for row in self.world.rows(_REFUNDS, order.id)]
        for line in self.lines(order):
            made = self.changes.read("refunds", _of(line), self._none_yet(line))
            found += [made] if made.cents else []
        return sorted(found, key=lambda refund: refund.line)

    def refunded_cents(self, line: Line, order: Order) -> int:
        """What was paid back for a line until now."""
        return sum(refund.cents for refund in self.refunds(order) if refund.line == line.line)

    def set_order(self, order: Order, **values: Any) -> None:
        """Changes an order."""
        row = Order(*self.world.rows(_ORDER, order.id)[0])
        self.changes.write("orders", str(order.id), row, **values)

    def set_quantity(self, line: Line, quantity: int) -> None:
        """Changes how many pieces a line has."""
        rows = [Line(*row) for row in self.world.rows(_LINES, line.order_id)]
        [row] = [row for row in rows if row.line == line.line]
        self.changes.write("order_lines", _of(line), row, quantity=quantity)

    def set_shipment(self, shipment: Shipment, **values: Any) -> None:
        """Changes the parcel of an order."""
        row = Shipment(*self.world.rows(_SHIPMENT, shipment.order_id)[0])
        self.changes.write("shipments", str(shipment.order_id), row, **values)

    def add_refund(self, line: Line, cents: int) -> None:
        """Adds to what is paid back for a line today."""
        nothing = self._none_yet(line)
        made = self.changes.read("refunds", _of(line), nothing)
        self.changes.write("refunds", _of(line), nothing, cents=made.cents + cents)

    def reserve(self, product: Product, customer: Customer, quantity: int) -> None:
        """Adds to what is put aside of a product for a customer."""
        nothing = Reserved(product.id, customer.id, 0)
        key = f"{product.id}/{customer.id}"
        reserved = self.changes.read("reserved", key, nothing)
        self.changes.write("reserved", key, nothing, quantity=reserved.quantity + quantity)

    def move_stock(self, product_id: int, pieces: int) -> None:
        """Adds pieces to what is free of a product; a stock that nobody counted stays unknown."""
        row = Product(*self._row(_PRODUCT, "product", product_id))
        free = self._now(row).on_hand
        if free is not None:
            self.changes.write("products", str(product_id), row, on_hand=free + pieces)

    def _none_yet(self, line: Line) -> Refund:
        return Refund(line.order_id, line.line, 0, self.today())

    def _now(self, product: Product) -> Product:
        return self.changes.read("products", str(product.id), product)

    def _row(self, sql: str, kind: str, record_id: int) -> tuple[Any, ...]:
        rows = self.world.rows(sql, record_id) if 0 <= record_id <= MAX_ID else []
        if not rows:
            raise Refused("not_found", f"no {kind} has the id {str(record_id)[:80]}")
        return rows[0]


def _of(line: Line) -> str:
    return f"{line.order_id}/{line.line}"
