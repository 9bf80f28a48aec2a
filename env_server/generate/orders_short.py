"""Jobs in a shop that take one or two calls.

A job is one function of a desk: it picks what is asked for, does it, and gives the text with what
the end should be. It raises `Unfit` where the shop does not hold it.
"""

from __future__ import annotations

from env_server.generate.orders_scene import (
    BECAUSE,
    Desk,
    Job,
    asked,
    change,
    is_open,
    sql,
)

STREETS = ("Rowan Lane", "Chapel Street", "Quarry Road", "Linden Row", "Station Square")

TOWNS = ("Oakham", "Redcliff", "Stonebridge", "Wexley")

DUE = (
    "On which day is, or was, the parcel of order {number} due?",
    "A customer asks for the day on which order {number} is or was due. What is it?",
    "Look up the due date of the parcel that belongs to order {number}.",
)

DAYS = (
    "For how many days after delivery can something of the category {category} be refunded here?",
    "How long, in days, does this shop refund {category} things after they were delivered?",
    "Somebody asks how many days the refund policy gives for the category {category}.",
)

FREE = (
    "How many pieces of the {product} are free to be sold?",
    "Somebody wants to know how much of the {product} the shop has left.",
    "Count the free pieces of the product that is called {product}.",
)

EMAIL = (
    "Which email address does the shop have of customer {customer}?",
    "Give the email address under which customer number {customer} can be reached.",
)

PAID = (
    "What was paid for line {line} of order {number}, all pieces together?",
    "How much money did line {line} of order {number} bring in?",
)

CANCEL = (
    "Please cancel order {number}: {because}.",
    "Order {number} is to be cancelled, since {because}.",
    "Stop order {number}. The reason: {because}.",
)

READDRESS = (
    'Order {number} shall go to "{address}" instead.',
    'The customer of order {number} has moved. Have it sent to "{address}".',
    'Set the address of order {number} to "{address}", written exactly like this.',
)

PUT_ASIDE = (
    "Put {quantity} pieces of product {product} aside for customer {customer}.",
    "Customer {customer} wants {quantity} pieces of product {product} kept back.",
)


def due_of_an_order(desk: Desk) -> Job:
    """One call."""
    parcels = [s for s in desk.shop.shipments if desk.wanted(s.due_on is not None)]
    number = desk.pick(parcels).order_id
    desk.look("query_logistics", order_id=number)
    how = "Answer with the date alone, as YYYY-MM-DD, or with unknown if none is on record."
    return Job(
        f"{desk.say(DUE, number=number)} {how}",
        f"SELECT coalesce(due_on, 'unknown') FROM shipments WHERE order_id = {number}",
        evidence=[(["query_logistics"], 1)],
    )


def days_of_a_category(desk: Desk) -> Job:
    """One call."""
    category = desk.pick(desk.shop.policies).category
    desk.look("refund_policy", category=category)
    return Job(
        f"{desk.say(DAYS, category=category)} Answer with the number alone.",
        f"SELECT refund_days FROM policies WHERE category = '{category}'",
        answer_kind="answer_number",
        evidence=[(["refund_policy"], 1)],
    )


def free_pieces(desk: Desk) -> Job:
    """Two calls."""
    product = desk.pick(p for p in desk.shop.products if desk.wanted(p.on_hand is not None))
    free = desk.look("check_stock", product_id=desk.find_product(product).part("id"))
    desk.impossible = free.value is None
    return Job(
        desk.say(FREE, product=product.name),
        {"free": sql(f"SELECT on_hand FROM products WHERE name = '{product.name}'")},
        {"free": "the number of free pieces"},
        evidence=[(["check_stock"], 1)],
    )


def email_of_a_customer(desk: Desk) -> Job:
    """One call."""
    customer = desk.pick(c for c in desk.shop.customers if desk.wanted(c.email is not None))
    found = desk.look("get_customer", customer_id=customer.id)
    desk.impossible = found.value["email"] is None
    return Job(
        desk.say(EMAIL, customer=customer.id),
        {"email": sql(f"SELECT email FROM customers WHERE id = {customer.id}")},
        {"email": "the address"},
        evidence=[(["get_customer", "find_customers"], 1)],
    )


def paid_for_a_line(desk: Desk) -> Job:
    """One call."""
    line = desk.pick(desk.shop.order_lines)
    desk.look("get_order", order_id=line.order_id)
    where = f"order_id = {line.order_id} AND line = {line.line}"
    return Job(
        desk.say(PAID, line=line.line, number=line.order_id),
        {"paid_cents": sql(f"SELECT quantity * unit_cents FROM order_lines WHERE {where}")},
        {"paid_cents": "the sum in cents"},
        evidence=[(["get_order"], 1)],
    )


def cancel_an_order(desk: Desk) -> Job:
    """One or two calls."""
    order_id = desk.pick(o for o in desk.shop.orders if desk.wanted(is_open(o))).id
    reason = desk.pick(BECAUSE)
    desk.look("get_order", order_id=order_id)
    desk.do(change("cancel_order", order_id=order_id, reason=reason))
    return Job(
        desk.say(CANCEL, number=order_id, because=desk.pick(BECAUSE[reason])),
        {"order_id": order_id},
        {"order_id": "the number of the cancelled order"},
        [asked("cancel_order", order_id=order_id, reason=reason)],
        [(["get_order"], 1)],
        [["get_order", "cancel_order"]],
    )


def readdress_an_order(desk: Desk) -> Job:
    """One or two calls."""
    order_id = desk.pick(o for o in desk.shop.orders if desk.wanted(is_open(o))).id
    address = f"{desk.between(1, 90)} {desk.pick(STREETS)}, {desk.pick(TOWNS)}"
    desk.look("get_order", order_id=order_id)
    desk.do(change("change_address", order_id=order_id, address=address))
    return Job(
        desk.say(READDRESS, number=order_id, address=address),
        {"order_id": order_id},
        {"order_id": "the number of the order"},
        [asked("change_address", order_id=order_id, address=address)],
        [(["get_order"], 1)],
        [["get_order", "change_address"]],
    )


def put_pieces_aside(desk: Desk) -> Job:
    """One or two calls."""
    quantity = desk.between(2, 6)
    stocked = [p for p in desk.shop.products if (p.on_hand or 0) >= quantity]
    short = [p for p in desk.shop.products if (p.on_hand or 0) < quantity]
    product = desk.pick(short if desk.impossible_wanted else stocked).id
    customer = desk.pick(desk.shop.customers).id
    wanted = {"product_id": product, "quantity": quantity, "customer_id": customer}
    desk.look("check_stock", product_id=product)
    desk.do(change("reserve_stock", **wanted))
    return Job(
        desk.say(PUT_ASIDE, quantity=quantity, product=product, customer=customer),
        {"product_id": product, "quantity": quantity},
        {"product_id": "the number of the product", "quantity": "how many pieces were put aside"},
        [asked("reserve_stock", **wanted)],
        [(["check_stock"], 1)],
        [["check_stock", "reserve_stock"]],
    )
