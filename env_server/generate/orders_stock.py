"""Longer jobs about what is in stock: keep it back, pass it on, send it once more.

They are made as in `orders_short`.
"""

from __future__ import annotations

from env_server.envs.orders_tables import Customer, Line, Product
from env_server.generate.orders_scene import (
    LOOK_AT_ORDER,
    Desk,
    Job,
    asked,
    called,
    change,
    fit,
    latest,
    named,
    sql,
)

AS_MANY = (
    "The buyer of order {number} liked the {product} in it and wants as many pieces of it again. "
    "Put them aside for them.",
    "Keep as many pieces of the {product} back for the buyer of order {number} as that order has.",
)

QUANTITY = (
    "{name} would rather have {quantity} pieces of the {product} in the order that they placed "
    "last.",
    "Raise the {product} in the newest order of {name} to {quantity} pieces in all.",
)

RESEND = (
    "{name} complains that the order placed last never came. If its parcel is lost, and what was "
    "in it is there, send it once more.",
    "Has the newest order of {name} been lost? Then send it again, provided that there are enough "
    "pieces.",
)

BASKET = (
    "{name} is furnishing a flat and needs {listed}, all of it or nothing at all. Count every one "
    "of these products first; only if each can be had in full, put them aside.",
    "Reserve {listed} for {name}, but only as a whole. Check the stock of all of them before you "
    "put the first piece aside.",
)

PASS_ON = (
    "{giver} needs only one piece of the {product} in the order placed last. The pieces that "
    "become free by that are for {taker}: put them aside, and none besides. Look first how many "
    "are free now.",
    "Lower the {product} in the newest order of {giver} to a single piece, and keep what that "
    "sets free back for {taker}. Note the stock before you begin.",
)

MOST_CALLS = 14


def put_aside_as_many(desk: Desk) -> Job:
    """Three or four calls."""
    line = desk.pick(desk.shop.order_lines)
    fit(desk.is_one_of_several(line))
    product = desk.product(line.product_id)
    free = product.on_hand
    fit(free is not None and free > 0 and desk.wanted(free >= line.quantity))
    order = desk.look("get_order", order_id=line.order_id)
    product_id = desk.find_product(product).part("id")
    desk.look("check_stock", product_id=product_id)
    pieces, buyer = desk.line_found(order, line, "quantity"), order.part("customer_id")
    desk.do(change("reserve_stock", product_id=product_id, quantity=pieces, customer_id=buyer))
    where = f"order_id = {line.order_id} AND product_id = ({named(product)})"
    quantity = sql(f"SELECT quantity FROM order_lines WHERE {where}")
    wanted = {
        "product_id": sql(named(product)),
        "quantity": quantity,
        "customer_id": sql(f"SELECT customer_id FROM orders WHERE id = {line.order_id}"),
    }
    return Job(
        desk.say(AS_MANY, number=line.order_id, product=product.name),
        {"quantity": quantity},
        {"quantity": "how many pieces were put aside"},
        [asked("reserve_stock", **wanted)],
        [(["check_stock"], 1), (["get_order"], 1)],
        [["check_stock", "reserve_stock"]],
    )


def change_the_quantity(desk: Desk) -> Job:
    """Five or six calls."""
    customer = desk.pick(c for c in desk.only_bearers() if desk.latest_of(c).status == "placed")
    line = desk.pick(desk.lines_of(desk.latest_of(customer)))
    product, quantity = desk.product(line.product_id), line.quantity + desk.between(1, 4)
    fit(bool(product.on_hand) and desk.is_one_of_several(line))
    newest = desk.listed(customer)[0].part("order_id")
    product_id = desk.find_product(product).part("id")
    number = desk.line_found(desk.look("get_order", order_id=newest), line, "line")
    desk.look("check_stock", product_id=product_id)
    desk.do(change("change_quantity", order_id=newest, line=number, quantity=quantity))
    fit(desk.wanted(not desk.impossible))
    where = f"order_id = ({latest(customer)}) AND product_id = ({named(product)})"
    wanted = {
        "order_id": sql(latest(customer)),
        "line": sql(f"SELECT line FROM order_lines WHERE {where}"),
        "quantity": quantity,
    }
    return Job(
        desk.say(QUANTITY, name=customer.name, product=product.name, quantity=quantity),
        {"order_id": sql(latest(customer)), "quantity": quantity},
        {"order_id": "the number of the order", "quantity": "how many pieces it has now"},
        [asked("change_quantity", **wanted)],
        [(["check_stock"], 1), (LOOK_AT_ORDER, 1)],
        [["check_stock", "change_quantity"]],
    )


def resend_the_latest(desk: Desk) -> Job:
    """Three to six calls."""
    customer = desk.pick(c for c in desk.only_bearers() if desk.latest_of(c).status == "shipped")
    fit(len(desk.lines_of(desk.latest_of(customer))) == 1)
    newest = desk.listed(customer)[0].part("order_id")
    looked = ["query_logistics"]
    if desk.look("query_logistics", order_id=newest).value["status"] == "lost":
        page = desk.look("get_order", order_id=newest)
        desk.look("check_stock", product_id=page.part("lines", 0, "product_id"))
        looked.append("check_stock")
    desk.do(change("resend_order", order_id=newest))
    fit(desk.wanted(not desk.impossible))
    order_id = sql(latest(customer))
    return Job(
        desk.say(RESEND, name=customer.name),
        {"order_id": order_id},
        {"order_id": "the number of the order that is sent again"},
        [asked("resend_order", order_id=order_id)],
        [([tool], 1) for tool in looked],
        [[tool, "resend_order"] for tool in looked],
    )


def reserve_a_basket(desk: Desk) -> Job:
    """Eight to ten calls: all or nothing."""
    products = desk.pick_some(desk.shop.products, 4 if desk.impossible_wanted else 3)
    basket = [(product, desk.between(1, 4)) for product in products]
    short = [product for product, pieces in basket if (product.on_hand or 0) < pieces]
    fit(len(short) == int(desk.impossible_wanted))
    customer = desk.pick(desk.only_bearers())
    desk.impossible = bool(short)
    _look_and_reserve(desk, basket, customer)
    *first, last = (f"{pieces} of the {product.name}" for product, pieces in basket)
    text = desk.say(BASKET, name=customer.name, listed=f"{', '.join(first)} and {last}")
    taker, count = sql(called(customer)), len(basket)
    return Job(
        f"{text} The desk closes soon: make no more than {MOST_CALLS} calls.",
        {"pieces": sum(pieces for _, pieces in basket)},
        {"pieces": "how many pieces were put aside in all"},
        [
            asked("reserve_stock", product_id=sql(named(p)), quantity=q, customer_id=taker)
            for p, q in basket
        ],
        [(["check_stock"], count)],
        [[*["check_stock"] * count, *["reserve_stock"] * count]],
        most_calls=MOST_CALLS,
    )


def _look_and_reserve(desk: Desk, basket: list[tuple[Product, int]], customer: Customer) -> None:
    found = [desk.find_product(product).part("id") for product, _ in basket]
    for product_id in found:
        desk.look("check_stock", product_id=product_id)
    if desk.impossible:
        return
    buyer = desk.find_customer(customer)
    pieces = [(one, quantity) for one, (_, quantity) in zip(found, basket, strict=True)]
    desk.do(
        *(
            change("reserve_stock", product_id=one, quantity=quantity, customer_id=buyer)
            for one, quantity in pieces
        )
    )


def pass_pieces_on(desk: Desk) -> Job:
    """Eight calls; the order of the changes matters."""
    giver = desk.pick(c for c in desk.only_bearers() if _shared(desk, c))
    line = desk.pick(_shared(desk, giver))
    taker = desk.pick(c for c in desk.only_bearers() if c != giver)
    product = desk.product(line.product_id)
    newest = desk.listed(giver)[0].part("order_id")
    product_id = desk.find_product(product).part("id")
    number = desk.line_found(desk.look("get_order", order_id=newest), line, "line")
    desk.look("check_stock", product_id=product_id)
    buyer, freed = desk.find_customer(taker), line.quantity - 1
    desk.do(
        change("change_quantity", order_id=newest, line=number, quantity=1),
        change("reserve_stock", product_id=product_id, quantity=freed, customer_id=buyer),
    )
    return Job(
        desk.say(PASS_ON, giver=giver.name, product=product.name, taker=taker.name),
        {"order_id": sql(latest(giver)), "pieces": sql(_freed(giver, product.name))},
        {"order_id": "the number of the order", "pieces": "how many pieces were put aside"},
        _pass_on(giver, product.name, taker),
        [(["check_stock"], 1), (LOOK_AT_ORDER, 1)],
        [["check_stock", "change_quantity"], ["check_stock", "reserve_stock"]],
    )


def _pass_on(giver: Customer, product: str, taker: Customer) -> list[dict[str, object]]:
    product_id = f"SELECT id FROM products WHERE name = '{product}'"
    where = f"order_id = ({latest(giver)}) AND product_id = ({product_id})"
    line = sql(f"SELECT line FROM order_lines WHERE {where}")
    return [
        asked("change_quantity", order_id=sql(latest(giver)), line=line, quantity=1),
        asked(
            "reserve_stock",
            product_id=sql(product_id),
            quantity=sql(_freed(giver, product)),
            customer_id=sql(called(taker)),
        ),
    ]


def _freed(giver: Customer, product: str) -> str:
    """SQL for the pieces of a product that all but one of a line are."""
    return (
        "SELECT l.quantity - 1 FROM order_lines l JOIN products p ON p.id = l.product_id "
        f"WHERE l.order_id = ({latest(giver)}) AND p.name = '{product}'"
    )


def _shared(desk: Desk, customer: Customer) -> list[Line]:
    """Lines of several pieces in a newest order that is not packed, of counted products."""
    order = desk.latest_of(customer)
    lines = desk.lines_of(order) if order.status == "placed" else []
    several = [one for one in lines if one.quantity > 1 and desk.is_one_of_several(one)]
    return [line for line in several if desk.product(line.product_id).on_hand is not None]
