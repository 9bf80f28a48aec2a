"""Longer jobs about money that goes back.

They are made as in `orders_short`.
"""

from __future__ import annotations

from env_server.envs.orders_tables import Customer, Line, Product
from env_server.generate.orders_scene import (
    BUYERS,
    Change,
    Desk,
    Job,
    asked,
    change,
    fit,
    item,
    latest,
    named,
    sql,
)
from env_server.generate.steps import Found

REFUND = (
    "The buyer of order {number} is unhappy with the {product} in it. Pay back {share} of what "
    "was paid for that line.",
    "For the {product} in order {number}, refund {share} of the price that was paid, all pieces "
    "together.",
    "Something is wrong with the {product} that came, or should have come, with order {number}: "
    "give {share} of the money for it back.",
)

ONCE_MORE = (
    "Pay back everything that was paid for the {product} in order {number}. It was delivered in "
    "time for that; but see first what was paid back already, since the whole sum must go back in "
    "one piece or not at all.",
    "The buyer of order {number} wants the full price of the {product} back, in one sum. The days "
    "for it are not over. Check earlier refunds of the order first.",
)

LOST = (
    "{name} has waited long enough. For every order of theirs whose parcel is lost, pay back all "
    "that was paid, line by line.",
    "Find out which parcels of {name} have been lost, and refund the orders in question in full, "
    "each of their lines for itself.",
)

RESEND_OR_REFUND = (
    "The newest order of {name} got lost on its way. If there are enough free pieces of "
    "everything in it, send it again; if not, or if nobody knows how many there are, refund each "
    "of its lines in full.",
    "{name} still waits for the order placed last, whose parcel is lost. Send it once more where "
    "the stock has all of it. Otherwise, also where a stock was not counted, pay every line back "
    "in full.",
)

TAKE_BACK = (
    "{name} has brought the {one} and the {two} back, which came with different orders. Refund "
    "both lines in full if the policies allow it for both; else refund neither.",
    "Take the {one} and the {two} back that {name} has bought: pay both lines back in full, or, "
    "if one of them cannot be refunded any more, none.",
)

NEVER_YET = "Nothing of this has been refunded before."

CENTS = {"refunded_cents": "what was paid back, in cents"}
ALL_CENTS = {"refunded_cents": "what was paid back in all, in cents"}


def refund_a_line(desk: Desk) -> Job:
    """Three to five calls."""
    return _refund(desk, "all", 1)


def refund_half_a_line(desk: Desk) -> Job:
    """Three to five calls."""
    return _refund(desk, "half", 2)


def _refund(desk: Desk, share: str, divisor: int) -> Job:
    sent = {s.order_id for s in desk.shop.shipments} - {r.order_id for r in desk.shop.refunds}
    line = desk.pick(line for line in desk.shop.order_lines if line.order_id in sent)
    fit(desk.is_one_of_several(line))
    order_id, product = line.order_id, desk.product(line.product_id)
    looked = ["query_logistics"]
    status = desk.look("query_logistics", order_id=order_id).value["status"]
    fit(status in ("delivered", "lost"))
    found = desk.find_product(product)
    if status == "delivered":
        desk.look("refund_policy", category=found.part("category"))
        looked.append("refund_policy")
    cents = line.quantity * line.unit_cents // divisor
    refund = change("refund_order", order_id=order_id, line=line.line, amount_cents=cents)
    desk.impossible = desk.refusal(refund) is not None
    fit(desk.wanted(not desk.impossible))
    if not desk.impossible:
        number = desk.line_found(desk.look("get_order", order_id=order_id), line, "line")
        desk.do(change("refund_order", order_id=order_id, line=number, amount_cents=cents))
    call, amount = _asked_refund(order_id, product, divisor)
    text = desk.say(REFUND, number=order_id, product=product.name, share=share)
    return Job(
        f"{text} {NEVER_YET}",
        {"refunded_cents": amount},
        CENTS,
        [call],
        [([tool], 1) for tool in looked],
        [[tool, "refund_order"] for tool in looked],
    )


def _asked_refund(
    order_id: int, product: Product, divisor: int
) -> tuple[dict[str, object], dict[str, str]]:
    """The refund of a share of what was paid for a product in an order, and how much that is."""
    where = f"FROM order_lines WHERE order_id = {order_id} AND product_id = ({named(product)})"
    amount = sql(f"SELECT quantity * unit_cents // {divisor} {where}")
    line = sql(f"SELECT line {where}")
    return asked("refund_order", order_id=order_id, line=line, amount_cents=amount), amount


def refund_once_more(desk: Desk) -> Job:
    """Three or four calls; something of the order, perhaps this line, was paid back before."""
    refund = desk.pick(desk.shop.refunds)
    lines = [line for line in desk.shop.order_lines if line.order_id == refund.order_id]
    line = desk.pick(line for line in lines if desk.wanted(line.line != refund.line))
    fit(desk.is_one_of_several(line))
    order_id, product = line.order_id, desk.product(line.product_id)
    desk.find_product(product)
    number = desk.line_found(desk.look("get_order", order_id=order_id), line, "line")
    desk.look("list_refunds", order_id=order_id)
    paid = line.quantity * line.unit_cents
    all_of_it = change("refund_order", order_id=order_id, line=number, amount_cents=paid)
    fit(desk.refusal(all_of_it) == ("over_paid" if desk.impossible_wanted else None))
    desk.do(all_of_it)
    call, amount = _asked_refund(order_id, product, 1)
    return Job(
        desk.say(ONCE_MORE, number=order_id, product=product.name),
        {"refunded_cents": amount},
        CENTS,
        [call],
        [(["list_refunds"], 1), (["get_order"], 1)],
        [["list_refunds", "refund_order"]],
    )


def refund_what_was_lost(desk: Desk) -> Job:
    """Seven to twelve calls."""
    customer = desk.pick(desk.only_bearers())
    statuses = [order.status for order in desk.orders_of(customer)]
    fit("shipped" in statuses and len(statuses) > 1)
    sent = [one for one in desk.listed(customer) if one.value["status"] == "shipped"]
    parcels = [desk.look("query_logistics", order_id=one.part("order_id")) for one in sent]
    lost = [p.part("order_id") for p in parcels if p.value["status"] == "lost"]
    fit(bool(lost))
    desk.do(*(one for order_id in lost for one in _all_lines(desk, order_id)))
    rows = (
        f"FROM {BUYERS} JOIN shipments s ON s.order_id = o.id JOIN order_lines l "
        f"ON l.order_id = o.id WHERE c.name = '{customer.name}' AND s.status = 'lost'"
    )
    total = sql(f"SELECT CAST(sum(l.quantity * l.unit_cents) AS BIGINT) {rows}")
    return Job(
        desk.say(LOST, name=customer.name),
        {"refunded_cents": total},
        ALL_CENTS,
        [_refund_each(f"{rows} ORDER BY ALL")],
        [(["query_logistics"], len(sent)), (["get_order"], len(lost))],
        [["query_logistics", "refund_order"]],
    )


def resend_or_refund(desk: Desk) -> Job:
    """Seven to eleven calls; what is missing from the stock decides."""
    customer = desk.pick(c for c in desk.only_bearers() if desk.latest_of(c).status == "shipped")
    order = desk.latest_of(customer)
    shipment = desk.shipment_of(order)
    fit(shipment is not None and shipment.status == "lost" and len(desk.lines_of(order)) == 3)
    newest = desk.listed(customer)[0].part("order_id")
    looked = ["query_logistics", "check_stock"]
    desk.look("query_logistics", order_id=newest)
    lines = desk.look("get_order", order_id=newest).part("lines").parts()
    enough = all(_is_enough(desk, line) for line in lines)  # looks no further than needed
    fit(desk.wanted(enough))
    again = [change("resend_order", order_id=newest)]
    desk.do(*(again if enough else _all_lines(desk, newest)))
    return Job(
        desk.say(RESEND_OR_REFUND, name=customer.name),
        {"order_id": sql(latest(customer)), "what": sql(f"SELECT {_what(customer)}")},
        {"order_id": "the number of the order", "what": 'either "resent" or "refunded"'},
        _asked_again_or_back(customer),
        [(["query_logistics"], 1), (["get_order"], 1), (["check_stock"], 3 if enough else 1)],
        [[tool, "resend_order" if enough else "refund_order"] for tool in looked],
    )


def _is_enough(desk: Desk, line: Found) -> bool:
    free = desk.look("check_stock", product_id=line.part("product_id")).value
    return free is not None and free >= line.value["quantity"]


def _what(customer: Customer) -> str:
    """SQL for what to do with a customer's newest order, whose parcel is lost."""
    return (
        "CASE WHEN (SELECT count(*) FROM order_lines n JOIN products p ON p.id = n.product_id "
        f"WHERE n.order_id = ({latest(customer)}) AND coalesce(p.on_hand, 0) < n.quantity) = 0 "
        "THEN 'resent' ELSE 'refunded' END"
    )


def _asked_again_or_back(customer: Customer) -> list[dict[str, object]]:
    where, what = f"WHERE o.id = ({latest(customer)})", _what(customer)
    again = f"SELECT [o.id] FROM orders o {where} AND {what} = 'resent'"
    lines = "FROM orders o JOIN order_lines l ON l.order_id = o.id"
    return [
        asked("resend_order", again, order_id=item(0)),
        _refund_each(f"{lines} {where} AND {what} = 'refunded' ORDER BY ALL"),
    ]


def take_two_things_back(desk: Desk) -> Job:
    """Seven to eleven calls: both or neither."""
    customer = desk.pick(desk.only_bearers())
    lines = _from_two_orders(desk, customer)
    products = [desk.product(line.product_id) for line in lines]
    found = [desk.find_product(product) for product in products]
    arrived = [one for one in desk.listed(customer) if one.value["status"] == "delivered"]
    missing, pages = {line.order_id for line in lines}, {}
    for shown in arrived:
        if missing:
            order_id = shown.part("order_id")
            pages[order_id.value] = desk.look("get_order", order_id=order_id)
            missing.discard(order_id.value)
    changes: list[Change] = []
    for line, product in zip(lines, found, strict=True):
        page = pages[line.order_id]
        changes.append(_take_back(desk, line, product, page))
        if desk.refusal(changes[-1]) is not None:
            break
    desk.do(*changes)
    fit(desk.wanted(not desk.impossible))
    rows = [_line_of(customer, product) for product in products]
    cents = " + ".join(f"(SELECT l.quantity * l.unit_cents {row})" for row in rows)
    one, two = (product.name for product in products)
    return Job(
        f"{desk.say(TAKE_BACK, name=customer.name, one=one, two=two)} Look into the one that is "
        f"named first before the other. {NEVER_YET}",
        {"refunded_cents": sql(f"SELECT {cents}")},
        ALL_CENTS,
        [_refund_each(row) for row in rows],
        [(["query_logistics"], len(changes)), (["refund_policy"], 1)],
        [["query_logistics", "refund_order"], ["refund_policy", "refund_order"]],
    )


def _from_two_orders(desk: Desk, customer: Customer) -> list[Line]:
    """Two lines of different delivered orders, of products that were bought only once."""
    orders = desk.orders_of(customer)
    bought = [line.product_id for order in orders for line in desk.lines_of(order)]
    arrived = [order for order in orders if order.status == "delivered"]
    fit(2 <= len(arrived) <= 3)
    repaid = {refund.order_id for refund in desk.shop.refunds}
    chosen = desk.pick_some([order for order in arrived if order.id not in repaid], 2)
    lines = [desk.pick(desk.lines_of(order)) for order in chosen]
    fit(all(bought.count(line.product_id) == 1 for line in lines))
    return lines


def _take_back(desk: Desk, line: Line, product: Found, page: Found) -> Change:
    """Looks at what decides whether a line can be refunded, and gives the refund."""
    desk.look("query_logistics", order_id=page.part("id"))
    desk.look("refund_policy", category=product.part("category"))
    number = desk.line_found(page, line, "line")
    cents = line.quantity * line.unit_cents
    return change("refund_order", order_id=page.part("id"), line=number, amount_cents=cents)


def _line_of(customer: Customer, product: Product) -> str:
    """SQL for the line by which a customer bought a product."""
    return (
        f"FROM {BUYERS} JOIN order_lines l ON l.order_id = o.id "
        f"WHERE c.name = '{customer.name}' AND l.product_id = ({named(product)})"
    )


def _all_lines(desk: Desk, order_id: Found) -> list[Change]:
    """Full refunds of the lines of an order, which is looked at first."""
    lines = desk.look("get_order", order_id=order_id).part("lines").parts()
    paid = [line.value["quantity"] * line.value["unit_cents"] for line in lines]
    return [
        change("refund_order", order_id=order_id, line=line.part("line"), amount_cents=cents)
        for line, cents in zip(lines, paid, strict=True)
    ]


def _refund_each(rows: str) -> dict[str, object]:
    """The full refund of each of some lines `l` of orders `o`."""
    each = f"SELECT [o.id, l.line, l.quantity * l.unit_cents] {rows}"
    return asked("refund_order", each, order_id=item(0), line=item(1), amount_cents=item(2))
