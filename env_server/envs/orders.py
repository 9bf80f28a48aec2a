"""Serve the customers of a shop: look their orders up, and change what its rules allow.

A tool that changes something checks all of its rules first and changes last, so that a refusal
leaves the shop as it was. The state is what differs from the shop that the episode began in.
"""

from __future__ import annotations

import copy
from typing import Annotated, Any, Literal

from pydantic import Field

from env_server.arguments import canonical_json
from env_server.env import Options, ToolError, tool
from env_server.envs.orders_books import Books, Refused
from env_server.envs.orders_lookups import Lookups
from env_server.envs.orders_reference import compute
from env_server.envs.orders_tables import MAX_CUSTOMERS, MIN_CUSTOMERS, OPEN, Order, ShopKey
from env_server.envs.world import in_one_message

MAX_CENTS = 10_000_000
MAX_ADDRESS = 200

WRITES = (
    "cancel_order",
    "change_address",
    "change_quantity",
    "refund_order",
    "reserve_stock",
    "resend_order",
)
"""The tools that change something."""

Quantity = Annotated[int, Field(ge=1, le=99)]
Cents = Annotated[int, Field(ge=1, le=MAX_CENTS)]


class OrdersOptions(Options):
    """Which shop it is."""

    world: Literal["episode"] | Annotated[int, Field(ge=0, lt=2**63)] = Field(
        default=0,
        description=(
            "A number: the shop drawn from it. 'episode': drawn anew in every episode, from its "
            "seed."
        ),
    )
    customers: int = Field(
        default=30, ge=MIN_CUSTOMERS, le=MAX_CUSTOMERS, description="Customers of the shop."
    )
    noise: int = Field(
        default=20,
        ge=0,
        le=100,
        description=(
            "Percent of the customers who have the name of another one; half as many of the "
            "orders were cancelled."
        ),
    )
    missing: int = Field(
        default=10,
        ge=0,
        le=100,
        description="Percent of the fields that may be empty which nobody filled in.",
    )

    _world_in_one_message = in_one_message(
        "world", "'episode' or a whole number from 0 to 2**63 - 1"
    )


class Orders(Lookups):
    """Serve the customers of a shop: orders, parcels, stock and refunds.

    Six tools change something, and refuse what the rules of the shop forbid; the others only
    look. Money is in cents. What is not on record is null. There is nothing to win without a
    task.
    """

    OPTIONS = OrdersOptions
    options: OrdersOptions

    def _begin(self) -> dict[str, Any]:
        asked = self.options
        world = asked.world
        if world == "episode":
            world = int(self.np_random.integers(2**63))
        self._key = ShopKey(world, asked.customers, asked.noise, asked.missing)
        self._books = Books(self._key)
        return {"today": self._books.today()}

    def state(self) -> dict[str, Any]:
        """What differs from the shop at the start, and SHA-256 over its tables (hex)."""
        books = self._books
        return {"changes": books.changes.to_json(), "shop": books.world.state_hash.hex()}

    def reference(self, expression: str) -> Any:
        """Computes a value, or the end of a task, from the shop as it was at the start.

        Args:
            expression: One SELECT with one column and a total order; or a JSON object of the
                calls that were asked for and of the answer, see `orders_reference.Asked`.

        Returns:
            Of a SELECT its value, or a list of several; else an object of "changes" and "answer".

        Raises:
            ValueError: It is neither, or fails.
        """
        if not expression.startswith("{"):
            return self._books.world.evaluate(expression)
        trial = copy.copy(self)
        trial._books = Books(self._key)
        return compute(expression, trial._books, trial._run_asked)

    def _run_asked(self, name: str, arguments: dict[str, Any]) -> None:
        if name not in self.TOOLS:
            raise ValueError(f"expected a tool, got {name!r}")
        call = self.TOOLS[name].read(canonical_json(arguments))
        call.tool.method(self, **call.arguments)

    @tool
    def cancel_order(
        self,
        order_id: int,
        reason: Literal["customer_request", "duplicate", "out_of_stock", "fraud"],
    ) -> dict[str, Any]:
        """Cancels an order that is placed or packed; its pieces go back to the stock.

        What was paid goes back by itself. An order that has been shipped cannot be cancelled.

        Args:
            order_id: Id of the order.
            reason: Why.
        """
        order = self._open_order(order_id)
        for line in self._books.lines(order):
            self._books.move_stock(line.product_id, line.quantity)
        self._books.set_order(order, status="cancelled", cancel_reason=reason)
        return {"order_id": order_id, "status": "cancelled"}

    @tool
    def change_address(self, order_id: int, address: str) -> dict[str, Any]:
        """Sets where an order goes to, as long as it is placed or packed.

        Args:
            order_id: Id of the order.
            address: The new address, 1 to 200 characters.
        """
        if not 1 <= len(address) <= MAX_ADDRESS or address != address.strip():
            raise ToolError("expected an address of 1 to 200 characters without space around it")
        order = self._open_order(order_id)
        if order.address == address:
            raise Refused("nothing_to_change", f"order {order_id} goes there already")
        self._books.set_order(order, address=address)
        return {"order_id": order_id, "address": address}

    @tool
    def change_quantity(self, order_id: int, line: int, quantity: Quantity) -> dict[str, Any]:
        """Sets how many pieces of a product an order has, as long as it is placed.

        More pieces are taken from the stock, and must be free; fewer go back to it.

        Args:
            order_id: Id of the order.
            line: Number of the line.
            quantity: The new quantity.
        """
        order = self._open_order(order_id)
        found = self._books.line(order, line)
        if order.status == "packed":
            raise Refused("already_packed", f"order {order_id} is packed")
        if quantity == found.quantity:
            raise Refused("nothing_to_change", f"line {line} has {quantity} pieces already")
        more = quantity - found.quantity
        if more > 0:
            self._check_free(found.product_id, more)
        self._books.move_stock(found.product_id, -more)
        self._books.set_quantity(found, quantity)
        return {"order_id": order_id, "line": line, "quantity": quantity}

    @tool
    def refund_order(self, order_id: int, line: int, amount_cents: Cents) -> dict[str, Any]:
        """Pays back what was paid for a line of an order, or a part of it.

        The order must be delivered, and the day of its delivery not be longer ago than the policy
        of the product's category says; or its parcel must be lost, whatever the policy. All
        refunds of a line together are never more than what was paid for it.

        Args:
            order_id: Id of the order.
            line: Number of the line.
            amount_cents: How much, in cents.
        """
        order = self._books.order(order_id)
        found = self._books.line(order, line)
        self._check_refundable(order, found.product_id)
        left = found.quantity * found.unit_cents - self._books.refunded_cents(found, order)
        if amount_cents > left:
            raise Refused("over_paid", f"{left} cents are left of line {line}, got {amount_cents}")
        self._books.add_refund(found, amount_cents)
        return {"order_id": order_id, "line": line, "refunded_cents": amount_cents}

    @tool
    def reserve_stock(
        self, product_id: int, quantity: Quantity, customer_id: int
    ) -> dict[str, Any]:
        """Puts pieces of a product aside for a customer; they must be free.

        Args:
            product_id: Id of the product.
            quantity: How many.
            customer_id: Id of the customer.
        """
        product = self._books.product(product_id)
        customer = self._books.customer(customer_id)
        self._check_free(product.id, quantity)
        self._books.move_stock(product.id, -quantity)
        self._books.reserve(product, customer, quantity)
        return {"product_id": product_id, "customer_id": customer_id, "quantity": quantity}

    @tool
    def resend_order(self, order_id: int) -> dict[str, Any]:
        """Sends an order once more whose parcel is lost, with pieces from the stock.

        All of its pieces must be free, and nothing of it be refunded.

        Args:
            order_id: Id of the order.
        """
        order = self._books.order(order_id)
        shipment = self._books.shipment(order)
        if shipment is None or shipment.status != "lost":
            raise Refused("not_lost", f"no parcel of order {order_id} is lost")
        if self._books.refunds(order):
            raise Refused("already_refunded", f"something of order {order_id} was refunded")
        lines = self._books.lines(order)
        for line in lines:
            self._check_free(line.product_id, line.quantity)
        for line in lines:
            self._books.move_stock(line.product_id, -line.quantity)
        self._books.set_shipment(shipment, status="ready", tracking=None, due_on=None)
        return {"order_id": order_id, "status": "ready"}

    def _open_order(self, order_id: int) -> Order:
        """An order that has not left the house."""
        order = self._books.order(order_id)
        if order.status == "cancelled":
            raise Refused("already_cancelled", f"order {order_id} is cancelled")
        if order.status not in OPEN:
            raise Refused("already_shipped", f"order {order_id} is {order.status}")
        return order

    def _check_free(self, product_id: int, pieces: int) -> None:
        free = self._books.product(product_id).on_hand
        if free is None:
            raise Refused("not_on_record", f"nobody has counted product {product_id}")
        if free < pieces:
            raise Refused("out_of_stock", f"{free} of product {product_id} are free")

    def _check_refundable(self, order: Order, product_id: int) -> None:
        if order.status == "cancelled":
            raise Refused("already_cancelled", f"order {order.id} is cancelled")
        shipment = self._books.shipment(order)
        if shipment is None:
            raise Refused("not_shipped", f"order {order.id} is {order.status}: cancel it instead")
        if shipment.status == "lost":
            return
        if shipment.status != "delivered":
            raise Refused("not_delivered", f"the parcel of order {order.id} is {shipment.status}")
        policy = self._books.policy(self._books.product(product_id).category)
        if policy.refund_days == 0:
            raise Refused("not_refundable", f"{policy.category} is never refunded")
        if shipment.delivered_on is None:
            raise Refused("not_on_record", f"nobody noted when order {order.id} was delivered")
        if self._books.days_since(shipment.delivered_on) > policy.refund_days:
            raise Refused("window_closed", f"order {order.id} came on {shipment.delivered_on}")
