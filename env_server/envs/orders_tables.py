"""The rows of a shop: customers, products, orders, shipments, refunds, and the day it is.

A drawn shop is untidy, as real ones are: namesakes, products that are called almost alike,
cancelled orders, fields that nobody filled in. All of it follows from the arguments.
It knows nothing of how rows are stored and of what may be done with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np

MIN_CUSTOMERS = 10
MAX_CUSTOMERS = 200

OPEN = ("placed", "packed")
"""States of an order that has not left the house."""


class Customer(NamedTuple):
    """Somebody who buys; `address` is where they live."""

    id: int
    name: str
    email: str | None
    address: str | None


class Product(NamedTuple):
    """Something that is sold; `on_hand` pieces are free to be sold, None where nobody counted."""

    id: int
    name: str
    category: str
    price_cents: int
    on_hand: int | None


class Order(NamedTuple):
    """Something that was bought; `status` placed, packed, shipped, delivered or cancelled."""

    id: int
    customer_id: int
    placed_on: str
    status: str
    address: str
    cancel_reason: str | None


class Line(NamedTuple):
    """A position of an order; `unit_cents` is what was paid for each piece."""

    order_id: int
    line: int
    product_id: int
    quantity: int
    unit_cents: int


class Shipment(NamedTuple):
    """The parcel of an order that has left the house.

    `status` is ready, in_transit, out_for_delivery, delivered or lost.
    """

    order_id: int
    carrier: str
    tracking: str | None
    status: str
    due_on: str | None
    delivered_on: str | None


class Refund(NamedTuple):
    """What was paid back for a line of an order before today."""

    order_id: int
    line: int
    cents: int
    made_on: str


class Policy(NamedTuple):
    """Days after delivery in which products of a category can be refunded; 0: never."""

    category: str
    refund_days: int


class Today(NamedTuple):
    """The day that it is in this shop."""

    day: str


class Shop(NamedTuple):
    """All rows of a shop, each table in the order of its ids."""

    customers: list[Customer]
    products: list[Product]
    orders: list[Order]
    order_lines: list[Line]
    shipments: list[Shipment]
    refunds: list[Refund]
    policies: list[Policy]
    today: list[Today]


class ShopKey(NamedTuple):
    """What names a shop.

    Attributes:
        seed: What it is drawn from, 0 or more.
        customers: How many customers it has, 10 to 200.
        noise: Percent of customers who have the name of another one; half as many of the orders
            were cancelled.
        missing: Percent of the fields that may be empty which are.
    """

    seed: int
    customers: int
    noise: int
    missing: int


def draw_shop(key: ShopKey) -> Shop:
    """Draws a shop; equal keys give equal shops."""
    return _Draw(key).shop()


T = TypeVar("T")


class _Draw:
    """The rows of one shop, as they are drawn."""

    def __init__(self, key: ShopKey) -> None:
        self._rng = np.random.default_rng(key.seed)
        self._key = key
        self._day = np.datetime64("2025-01-06") + self._below(300)
        self._orders: list[Order] = []
        self._lines: list[Line] = []
        self._shipments: list[Shipment] = []
        self._refunds: list[Refund] = []

    def shop(self) -> Shop:
        """Draws everything, in an order that must stay as it is."""
        policies = [Policy(category, self._one(REFUND_DAYS)) for category in CATEGORIES]
        products = self._products()
        customers = self._customers()
        numbers = iter(self._some(range(1_000, 9_999), 6 * len(customers)))
        for customer in customers:
            self._buy(customer, products, sorted(next(numbers) for _ in range(self._below(5) + 1)))
        return Shop(
            customers,
            products,
            sorted(self._orders),
            sorted(self._lines),
            sorted(self._shipments),
            sorted(self._refunds),
            policies,
            [Today(str(self._day))],
        )

    def _products(self) -> list[Product]:
        names = [
            (f"{kind} {thing}", category)
            for category, things in CATEGORIES.items()
            for thing in things
            for kind in self._some(KINDS, 3)
        ]
        ids = sorted(self._some(range(100, 999), len(names)))
        return [
            Product(id, name, category, 50 * (self._below(190) + 10), self._maybe(self._below(9)))
            for id, (name, category) in zip(ids, names, strict=True)
        ]

    def _customers(self) -> list[Customer]:
        people = self._some([f"{a} {b}" for a in FIRST for b in LAST], self._key.customers)
        customers: list[Customer] = []
        for id in sorted(self._some(range(10, 999), len(people))):
            name = people[len(customers)]
            if customers and self._chance(self._key.noise):
                name = self._one(customers).name
            user = name.lower().replace(" ", ".")
            email = self._maybe(f"{user}{id}@{self._one(PROVIDERS)}")
            customers.append(Customer(id, name, email, self._maybe(self._address())))
        return customers

    def _buy(self, customer: Customer, products: list[Product], numbers: list[int]) -> None:
        """Draws the orders of a customer, the first the oldest, no two on one day."""
        ages = sorted(self._some(range(90), len(numbers)), reverse=True)
        if self._chance(60):
            ages[-1] = self._one([age for age in range(7) if age not in ages[:-1]])
            ages.sort(reverse=True)
        for order_id, age in zip(numbers, ages, strict=True):
            bought = self._some(products, self._below(3) + 1)
            address = customer.address or self._address()
            order = Order(order_id, customer.id, self._ago(age), "placed", address, None)
            self._place(order, bought, age)

    def _place(self, order: Order, bought: list[Product], age: int) -> None:
        for number, product in enumerate(bought, start=1):
            paid = product.price_cents + 50 * self._one((0, 0, 0, 1, 3, -2))
            quantity = self._one((1, 1, 1, 2, 2, 3, 4))
            self._lines.append(Line(order.id, number, product.id, quantity, paid))
        if self._chance(self._key.noise // 2):
            order = order._replace(status="cancelled", cancel_reason=self._one(CANCEL_REASONS))
        elif age <= 2:
            order = order._replace(status=self._one(("placed", "placed", "packed")))
        else:
            order = order._replace(status=self._ship(order.id, age))
        self._orders.append(order)

    def _ship(self, order_id: int, age: int) -> str:
        """Draws the parcel of an order, and says what the order's status is."""
        carrier, days = self._one(CARRIERS), int(self._one((2, 3, 3, 4, 5, 7)))
        tracking = self._maybe(f"{carrier[0]}{order_id}{self._below(90_000) + 10_000}")
        due = self._maybe(self._ago(age - days))
        if self._chance(20):
            self._shipments.append(Shipment(order_id, carrier, tracking, "lost", due, None))
            return "shipped"
        if days >= age:
            status = "out_for_delivery" if days == age else "in_transit"
            self._shipments.append(Shipment(order_id, carrier, tracking, status, due, None))
            return "shipped"
        arrived = self._maybe(self._ago(age - days))
        self._shipments.append(Shipment(order_id, carrier, tracking, "delivered", due, arrived))
        if arrived is not None and self._chance(15):
            line = next(line for line in reversed(self._lines) if line.order_id == order_id)
            cents = line.quantity * line.unit_cents // self._one((1, 2, 4))
            self._refunds.append(Refund(order_id, line.line, cents, arrived))
        return "delivered"

    def _address(self) -> str:
        return f"{self._below(98) + 1} {self._one(STREETS)}, {self._one(TOWNS)}"

    def _ago(self, days: int) -> str:
        return str(self._day - days)

    def _maybe(self, value: T) -> T | None:
        return None if self._chance(self._key.missing) else value

    def _chance(self, percent: int) -> bool:
        return self._below(100) < percent

    def _below(self, bound: int) -> int:
        return int(self._rng.integers(bound))

    def _one(self, pool: Sequence[T]) -> T:
        return pool[self._below(len(pool))]

    def _some(self, pool: Sequence[T], count: int) -> list[T]:
        """Draws different items, in any order."""
        return [pool[int(i)] for i in self._rng.permutation(len(pool))[:count]]


CATEGORIES = {
    "kitchen": ("kettle", "pan", "toaster"),
    "garden": ("hose", "rake", "lantern"),
    "office": ("lamp", "chair", "shelf"),
    "travel": ("suitcase", "bottle", "pillow"),
    "grocery": ("coffee", "honey", "tea"),
}
"""Categories, and what there is of each."""

KINDS = ("basic", "big", "blue", "classic", "compact", "green", "light", "red", "small", "smart")

REFUND_DAYS = (0, 14, 14, 30, 30, 60)

CANCEL_REASONS = ("customer_request", "duplicate", "out_of_stock", "fraud")

CARRIERS = ("Northpost", "Parcelway", "Swiftline", "Tidecargo")

FIRST = (
    *("Ada", "Amir", "Anna", "Bela", "Carla", "Dina", "Edda", "Emil", "Femi", "Gita", "Hugo"),
    *("Ines", "Ivan", "Jana", "Kofi", "Lena", "Mara", "Milo", "Nils", "Noor", "Olga", "Pavel"),
    *("Rosa", "Sami", "Tara", "Uma", "Vera", "Yara", "Zeno"),
)

LAST = (
    *("Abara", "Berg", "Bergen", "Castro", "Costa", "Dahl", "Duarte", "Eklund", "Fischer"),
    *("Fisher", "Grau", "Haddad", "Ito", "Jansen", "Janssen", "Kaya", "Lind", "Lindt", "Moreau"),
    *("Novak", "Okafor", "Petit", "Rossi", "Sato", "Silva", "Weber"),
)
"""Some differ in a letter or two."""

PROVIDERS = ("example.com", "example.net", "mail.example", "post.example")

STREETS = (
    *("Alder Street", "Bakers Lane", "Canal Road", "Dune Avenue", "Elm Street", "Ferry Lane"),
    *("Garden Row", "Harbour Road", "Juniper Lane", "Kiln Street", "Mill Road", "Orchard Way"),
)

TOWNS = ("Ashford", "Brookfield", "Easton", "Fairhaven", "Lakewood", "Millbrook", "Westport")
