"""A drawn shop with something to be done in it, and how that is written down as a task.

A job is made by doing it: what was looked up and changed on the way is the gold solution. Beside
it stands what was asked for, in SQL, from which the expected end is computed anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from env_server.envs.orders import Orders
from env_server.envs.orders_books import Reason, Refused
from env_server.envs.orders_tables import (
    OPEN,
    Customer,
    Line,
    Order,
    Product,
    Shipment,
    ShopKey,
    draw_shop,
)
from env_server.generate.steps import Draw, Found, Steps, Unfit

Value: TypeAlias = Found | int | str
Change: TypeAlias = tuple[str, Mapping[str, Value]]
"""A call that changes something: the tool, and its arguments by name."""


class Job(NamedTuple):
    """Something to be done in a shop, or to be found out.

    Attributes:
        text: What, in words for the agent.
        answer: What the answer holds besides "outcome", as `orders_reference.Asked` has it; or one
            SELECT of a text or number that is the whole answer.
        fields: The answer's fields in words, by name.
        calls: The changes that were asked for, as `orders_reference.Asked` has them.
        evidence: Tools that must be called, any of each group, and how often.
        in_order: Tools that must be called in this order, where all can be done; several such.
        most_calls: As the text says; None: it does not.
        answer_kind: The validator of an answer that is one text or number.
    """

    text: str
    answer: Mapping[str, Any] | str
    fields: Mapping[str, str] = {}
    calls: Sequence[Mapping[str, Any]] = ()
    evidence: Sequence[tuple[Sequence[str], int]] = ()
    in_order: Sequence[Sequence[str]] = ()
    most_calls: int | None = None
    answer_kind: str = "answer_equals"


class Desk(Draw):
    """A desk in a drawn shop, which is opened with the first look at it.

    Attributes:
        shop: Its rows.
        impossible_wanted: Whether a job that cannot be done is wanted, where there may be one.
        impossible: Whether the job at hand cannot be done.
    """

    def __init__(
        self, rng: np.random.Generator, env: Orders, options: dict[str, int], impossible: bool
    ) -> None:
        """Draws a shop.

        Args:
            rng: Draws what is asked for.
            env: Is played.
            options: Of its reset.
            impossible: Whether a job that cannot be done is wanted.
        """
        super().__init__(rng)
        key = ShopKey(*(options[name] for name in ("world", "customers", "noise", "missing")))
        self.shop = draw_shop(key)
        self.impossible_wanted = impossible
        self.impossible = False
        self._env = env
        self._options = options

    @cached_property
    def steps(self) -> Steps:
        """The way to the goal."""
        self._env.reset(options=self._options)
        return Steps(self._env)

    def look(self, tool: str, **arguments: Value) -> Found:
        """Calls a tool, unless the same call was made before."""
        return self.steps.ask(tool, **arguments)

    def say(self, texts: Sequence[str], **words: object) -> str:
        """One of several wordings, filled in."""
        return self.pick(texts).format(**words)

    def do(self, *changes: Change) -> None:
        """Changes something: all of it, or, where the rules refuse a part, nothing."""
        self.impossible = self.refusal(*changes) is not None
        for tool, given in () if self.impossible else changes:
            self.look(tool, **given)

    def refusal(self, *changes: Change) -> Reason | None:
        """Why the rules refuse the first of these that they refuse; None: they allow all."""
        trial = self._env.fork()
        for tool, given in changes:
            plain = {k: v.value if isinstance(v, Found) else v for k, v in given.items()}
            try:
                trial.TOOLS[tool].method(trial, **plain)
            except Refused as e:
                return e.reason
        return None

    def only_bearers(self) -> list[Customer]:
        """The customers whose name nobody else has."""
        borne = Counter(customer.name for customer in self.shop.customers)
        return [c for c in self.shop.customers if borne[c.name] == 1]

    def namesakes(self, count: int) -> list[Customer]:
        """All customers of one name, by id.

        Raises:
            Unfit: No name is borne by so many.
        """
        borne = Counter(customer.name for customer in self.shop.customers)
        name = self.pick(name for name, number in borne.items() if number == count)
        return [customer for customer in self.shop.customers if customer.name == name]

    def find_customer(self, customer: Customer) -> Found:
        """Comes to the id of a customer by their name."""
        hits = self.look("find_customers", text=customer.name)
        return hits.part([hit["id"] for hit in hits.value].index(customer.id), "id")

    def find_product(self, product: Product) -> Found:
        """Comes to a product by its name: what the search shows of it."""
        hits = self.look("find_products", text=product.name)
        return hits.part([hit["id"] for hit in hits.value].index(product.id))

    def listed(self, customer: Customer) -> list[Found]:
        """Comes to what the list of a customer's orders says of each, the newest first."""
        return self.look("list_orders", customer_id=self.find_customer(customer)).parts()

    def line_found(self, order: Found, line: Line, field: str) -> Found:
        """Comes to a field of a line in what `get_order` says of its order."""
        lines = [one["line"] for one in order.value["lines"]]
        return order.part("lines", lines.index(line.line), field)

    def orders_of(self, *customers: Customer) -> list[Order]:
        """The orders of customers, the newest first."""
        ids = {customer.id for customer in customers}
        found = [order for order in self.shop.orders if order.customer_id in ids]
        return sorted(found, key=lambda order: (order.placed_on, order.id), reverse=True)

    def lines_of(self, order: Order) -> list[Line]:
        """The lines of an order."""
        return [line for line in self.shop.order_lines if line.order_id == order.id]

    def is_one_of_several(self, line: Line) -> bool:
        """Whether its order has other lines, so that which one is meant has to be looked up."""
        return sum(one.order_id == line.order_id for one in self.shop.order_lines) > 1

    def shipment_of(self, order: Order) -> Shipment | None:
        """The parcel of an order, or None."""
        return next((s for s in self.shop.shipments if s.order_id == order.id), None)

    def product(self, product_id: int) -> Product:
        """A product."""
        return next(product for product in self.shop.products if product.id == product_id)

    def latest_of(self, customer: Customer) -> Order:
        """The order that a customer placed last."""
        return self.orders_of(customer)[0]

    def wanted(self, possible: bool) -> bool:
        """Whether something that is possible, or is not, is what is wanted here."""
        return possible != self.impossible_wanted


def is_open(order: Order) -> bool:
    """Whether an order has not left the house."""
    return order.status in OPEN


def fit(condition: bool) -> None:
    """Goes on only where a drawn shop holds what a job is about.

    Raises:
        Unfit: It does not.
    """
    if not condition:
        raise Unfit("the shop does not hold it")


def change(tool: str, /, **arguments: Value) -> Change:
    """A call that changes something."""
    return tool, arguments


def asked(tool: str, each: str = "", /, **arguments: Any) -> dict[str, Any]:
    """A call that was asked for, see `orders_reference.AskedCall`."""
    call = {"tool": tool, "arguments": arguments}
    return {**call, "each": each} if each else call


def sql(text: str) -> dict[str, str]:
    """A value that a SELECT gives."""
    return {"sql": text}


def item(place: int) -> dict[str, int]:
    """A value of each list that `each` gives."""
    return {"item": place}


def called(customer: Customer) -> str:
    """SQL for the id of a customer by their name."""
    return f"SELECT id FROM customers WHERE name = '{customer.name}'"


def named(product: Product) -> str:
    """SQL for the id of a product by its name."""
    return f"SELECT id FROM products WHERE name = '{product.name}'"


def latest(customer: Customer) -> str:
    """SQL for the id of the order that a customer placed last."""
    return (
        "SELECT o.id FROM orders o JOIN customers c ON c.id = o.customer_id "
        f"WHERE c.name = '{customer.name}' ORDER BY o.placed_on DESC LIMIT 1"
    )


BUYERS = "orders o JOIN customers c ON c.id = o.customer_id"
"""SQL for orders `o` with who placed them, `c`."""

IN_HOUSE = "o.status IN ('placed', 'packed')"
"""SQL for an order that has not left the house."""

LOOK_AT_ORDER = ("get_order", "list_orders")
"""What shows the status of an order."""

BECAUSE = {
    "customer_request": ("the customer has changed their mind", "the customer asked for it"),
    "duplicate": ("it was placed twice by mistake", "it is a duplicate"),
    "fraud": ("the bank reports a stolen card", "it turned out to be fraud"),
}
"""Why orders are cancelled, in words."""
