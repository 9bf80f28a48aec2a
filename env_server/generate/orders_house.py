"""Longer jobs about orders that have not left the house: stop them, or send them elsewhere.

They are made as in `orders_short`.
"""

from __future__ import annotations

from env_server.envs.orders_tables import Order, Product
from env_server.generate.orders_scene import (
    BECAUSE,
    BUYERS,
    IN_HOUSE,
    LOOK_AT_ORDER,
    Desk,
    Job,
    asked,
    change,
    fit,
    is_open,
    item,
    latest,
    named,
    sql,
)
from env_server.generate.steps import Found

CANCEL_LATEST = (
    "{name} wants to get rid of the order that they placed last: {because}.",
    "Cancel the newest order of {name}, since {because}.",
    "The last order by {name} must not go out, because {because}: cancel it.",
)

TO_A_FRIEND = (
    "{name} has made friends with {friend} and wants the order placed last to go to that "
    "friend's home address.",
    "The newest order of {name} is a present for {friend}: send it to the address that the shop "
    "has of {friend}.",
)

CANCEL_OPEN = (
    "Somebody by the name of {name} is on the phone and wants the order cancelled that has not "
    "left the house yet: {because}. More is not known, and there are several people of that name. "
    "If more than one order could be meant, it is ambiguous; if there is none, not_found.",
    "Cancel the order of {name} that is still in the house, since {because}. Several customers "
    "bear the name: if they have more than one such order between them, what is meant is "
    "ambiguous, and if they have none, not_found.",
)

HOUSEHOLD = (
    "{one} and {two} have moved in with {host}. Whatever either of them has ordered and has not "
    "left the house yet is to go to the home address of {host}.",
    "Redirect all orders of {one} and of {two} that are still in the house to where {host} lives.",
)

RECALL = (
    "The maker has recalled the {product}. Go through the orders {numbers}: cancel those that "
    "hold it and have not left the house, as out of stock, and leave the others alone.",
    "We cannot deliver the {product} any more. Of the orders {numbers}, cancel each that is still "
    "in the house and has it on a line; the reason is that it is out of stock.",
)

SWEEP = (
    "The accounts of {one} and {two} were broken into; this is about every customer of exactly "
    "one of these names. Cancel all their orders that have not left the house, as fraud.",
    "Until the police have called back, nothing must go out to anybody who is called {one} or "
    "{two}: cancel each order of theirs that is still in the house. It is a case of fraud.",
)


def cancel_the_latest(desk: Desk) -> Job:
    """Three calls."""
    customer = desk.pick(c for c in desk.only_bearers() if is_open(desk.latest_of(c)))
    newest = desk.listed(customer)[0].part("order_id")
    reason = desk.pick(BECAUSE)
    desk.do(change("cancel_order", order_id=newest, reason=reason))
    order_id = sql(latest(customer))
    return Job(
        desk.say(CANCEL_LATEST, name=customer.name, because=desk.pick(BECAUSE[reason])),
        {"order_id": order_id},
        {"order_id": "the number of the cancelled order"},
        [asked("cancel_order", order_id=order_id, reason=reason)],
        [(LOOK_AT_ORDER, 1)],
        [["list_orders", "cancel_order"]],
    )


def send_to_a_friend(desk: Desk) -> Job:
    """Four or five calls."""
    customer = desk.pick(c for c in desk.only_bearers() if is_open(desk.latest_of(c)))
    others = [c for c in desk.only_bearers() if c != customer]
    friend = desk.pick(c for c in others if desk.wanted(c.address is not None))
    newest = desk.listed(customer)[0].part("order_id")
    home = desk.look("get_customer", customer_id=desk.find_customer(friend)).part("address")
    if home.value is None:
        desk.impossible = True
    else:
        desk.do(change("change_address", order_id=newest, address=home))
    fit(desk.wanted(not desk.impossible))
    address = f"SELECT address FROM customers WHERE name = '{friend.name}'"
    wanted = {"order_id": sql(latest(customer)), "address": sql(address)}
    return Job(
        desk.say(TO_A_FRIEND, name=customer.name, friend=friend.name),
        wanted,
        {"order_id": "the number of the order", "address": "where it goes to now"},
        [asked("change_address", **wanted)],
        [(LOOK_AT_ORDER, 1), (["get_customer"], 1)],
        [["get_customer", "change_address"]],
    )


def cancel_the_open_one(desk: Desk) -> Job:
    """Three or four calls: two customers have one name."""
    people = desk.namesakes(2)
    in_house = [order for order in desk.orders_of(*people) if is_open(order)]
    fit(desk.wanted(len(in_house) == 1))
    found = _in_house([one for person in people for one in desk.listed(person)])
    reason = desk.pick(BECAUSE)
    if len(found) == 1:
        desk.do(change("cancel_order", order_id=found[0], reason=reason))
    else:
        desk.impossible = True
    name = people[0].name
    where = f"WHERE c.name = '{name}' AND {IN_HOUSE} ORDER BY o.id"
    order_id = sql(f"SELECT o.id FROM {BUYERS} {where}")
    return Job(
        desk.say(CANCEL_OPEN, name=name, because=desk.pick(BECAUSE[reason])),
        {"order_id": order_id},
        {"order_id": "the number of the cancelled order"},
        [asked("cancel_order", order_id=order_id, reason=reason)],
        [(["list_orders"], 2)],
        [["list_orders", "list_orders", "cancel_order"]],
    )


def move_a_household(desk: Desk) -> Job:
    """Seven to ten calls."""
    host, *guests = desk.pick_some(desk.only_bearers(), 3)
    orders = desk.orders_of(*guests)
    fit(host.address is not None and 0 < sum(is_open(order) for order in orders) < len(orders))
    found = _in_house([one for guest in guests for one in desk.listed(guest)])
    home = desk.look("get_customer", customer_id=desk.find_customer(host)).part("address")
    desk.do(*(change("change_address", order_id=one, address=home) for one in found))
    fit(not desk.impossible)
    one, two = (guest.name for guest in guests)
    chosen = f"FROM {BUYERS} WHERE c.name IN ('{one}', '{two}') AND {IN_HOUSE} ORDER BY o.id"
    address = sql(f"SELECT address FROM customers WHERE name = '{host.name}'")
    return Job(
        desk.say(HOUSEHOLD, one=one, two=two, host=host.name),
        {"order_ids": {"list": f"SELECT o.id {chosen}"}},
        {"order_ids": "a list of the numbers of the redirected orders"},
        [asked("change_address", f"SELECT [o.id] {chosen}", order_id=item(0), address=address)],
        [(["get_customer"], 1), (LOOK_AT_ORDER, 2)],
        [["get_customer", "change_address"]],
    )


def recall_a_product(desk: Desk) -> Job:
    """Seven or eight calls."""
    product = desk.pick(desk.shop.products)
    numbers = [order.id for order in _to_go_through(desk, product)]
    product_id = desk.find_product(product).value["id"]
    pages = [desk.look("get_order", order_id=number) for number in numbers]
    stopped = [
        page.part("id")
        for page in pages
        if page.value["status"] in ("placed", "packed")
        and any(line["product_id"] == product_id for line in page.value["lines"])
    ]
    desk.do(*(change("cancel_order", order_id=one, reason="out_of_stock") for one in stopped))
    listed = ", ".join(map(str, numbers))
    chosen = (
        f"FROM orders o JOIN order_lines l ON l.order_id = o.id WHERE o.id IN ({listed}) "
        f"AND {IN_HOUSE} AND l.product_id = ({named(product)}) ORDER BY o.id"
    )
    return Job(
        desk.say(RECALL, product=product.name, numbers=listed),
        {"order_ids": {"list": f"SELECT o.id {chosen}"}},
        {"order_ids": "a list of the numbers of the cancelled orders"},
        [_cancel_each(chosen, "out_of_stock")],
        [(["get_order"], len(numbers))],
        [["get_order", "cancel_order"]],
    )


def sweep_for_fraud(desk: Desk) -> Job:
    """Seven to twelve calls, through customers of one name."""
    twins, other = desk.namesakes(2), desk.pick(desk.only_bearers())
    orders = desk.orders_of(*twins, other)
    fit(2 <= sum(is_open(order) for order in orders) < len(orders))
    found = _in_house([one for person in (*twins, other) for one in desk.listed(person)])
    desk.do(*(change("cancel_order", order_id=one, reason="fraud") for one in found))
    one, two = twins[0].name, other.name
    chosen = f"FROM {BUYERS} WHERE c.name IN ('{one}', '{two}') AND {IN_HOUSE} ORDER BY o.id"
    return Job(
        desk.say(SWEEP, one=one, two=two),
        {"order_ids": {"list": f"SELECT o.id {chosen}"}},
        {"order_ids": "a list of the numbers of the cancelled orders"},
        [_cancel_each(chosen, "fraud")],
        [(LOOK_AT_ORDER, 3)],
        [["list_orders", "cancel_order"]],
    )


def _cancel_each(chosen: str, reason: str) -> dict[str, object]:
    return asked("cancel_order", f"SELECT [o.id] {chosen}", order_id=item(0), reason=reason)


def _in_house(listed: list[Found]) -> list[Found]:
    """The numbers of those listed orders that have not left the house."""
    return [one.part("order_id") for one in listed if one.value["status"] in ("placed", "packed")]


def _to_go_through(desk: Desk, product: Product) -> list[Order]:
    """Five orders: at most two to stop, one that holds the product and is gone, and others."""
    having = {line.order_id for line in desk.shop.order_lines if line.product_id == product.id}
    with_it = [order for order in desk.shop.orders if order.id in having]
    stopped = [order for order in with_it if is_open(order)][:2]
    gone = [order for order in with_it if not is_open(order)][:1]
    fit(bool(stopped) and bool(gone))
    others = [o for o in desk.shop.orders if o.id not in having and is_open(o)]
    orders = [*stopped, *gone, *desk.pick_some(others, 4 - len(stopped))]
    return desk.pick_some(orders, len(orders))
