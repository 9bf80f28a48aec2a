"""Orders: what may be changed and what not, state as a difference, shops, and the tasks."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from playing import make_task

from env_server import codec
from env_server.env import Final
from env_server.envs.orders import WRITES, Orders
from env_server.envs.orders_books import REASONS, Reason
from env_server.envs.orders_lookups import PAGE
from env_server.envs.orders_tables import MAX_CUSTOMERS, ShopKey, draw_shop
from env_server.envs.orders_world import open_shop
from env_server.episode import Episode, EpisodeSpec
from env_server.generate.orders import CALLS, JOBS, generate
from env_server.gold import play_gold
from env_server.lint import lint
from env_server.registry import Registry
from env_server.scoring import metrics
from env_server.scoring.replayed import GoldBook, Replayed
from env_server.tasks import LEVELS, Task, read_tasks
from env_server.validators import CallRecord, Ending, answer_fields
from railgym.actions import ToolCall, call
from railgym.spaces import MAX_OBSERVATION

ENV_ID = "railgym/Orders-v1"
FOLDER = Path(__file__).parents[1] / "tasks" / "orders"
TASKS = read_tasks([FOLDER])
REGISTRY = Registry(TASKS)
SHOP = {"world": 7, "customers": 60, "noise": 20, "missing": 10}
READS = [name for name in Orders.TOOLS if name not in WRITES]


def opened(**options):
    env = Orders()
    env.reset(seed=0, options={**SHOP, **options})
    return env


def ask(env, name, /, **arguments):
    return json.loads(env.step(call(name, **arguments)).observation)


def result(env, name, /, **arguments):
    return ask(env, name, **arguments)["result"]


def refusal(env, name, /, **arguments):
    """Why a call is refused, which must leave the state as it was."""
    before = env.state_hash()
    answer = ask(env, name, **arguments)
    assert answer["error"]["code"] == "tool_error", answer
    assert env.state_hash() == before
    return answer["error"]["message"].partition(":")[0]


def changes(env):
    return env.state()["changes"]


def first(env, sql):
    """The first row of a query, on the shop as it was at the start."""
    return env._books.world.rows(sql)[0]


def an_order(env, status, more="TRUE"):
    return first(env, f"SELECT id FROM orders o WHERE status = '{status}' AND {more} ORDER BY id")[
        0
    ]


def a_line(env, where):
    """Order, line, product, quantity, paid cents and parcel's day of one line that is like that."""
    return first(
        env,
        "SELECT l.order_id, l.line, l.product_id, l.quantity, l.quantity * l.unit_cents, "
        "s.delivered_on FROM order_lines l JOIN orders o ON o.id = l.order_id "
        "JOIN products p ON p.id = l.product_id JOIN policies y ON y.category = p.category "
        "LEFT JOIN shipments s ON s.order_id = o.id "
        "LEFT JOIN refunds r ON r.order_id = o.id AND r.line = l.line "
        f"CROSS JOIN today t WHERE {where} ORDER BY l.order_id, l.line",
    )


AGE = "date_diff('day', CAST(s.delivered_on AS DATE), CAST(t.day AS DATE))"
REFUNDABLE = f"s.status = 'delivered' AND {AGE} <= y.refund_days AND y.refund_days > 0"


# What may be changed, and how it shows


def test_a_cancelled_order_gives_its_pieces_back():
    env = opened()
    order_id, line, product_id, quantity, *_ = a_line(
        env, "o.status = 'packed' AND p.on_hand IS NOT NULL"
    )
    free = result(env, "check_stock", product_id=product_id)
    result(env, "cancel_order", order_id=order_id, reason="duplicate")
    assert result(env, "check_stock", product_id=product_id) == free + quantity
    page = result(env, "get_order", order_id=order_id)
    assert (page["status"], page["cancel_reason"]) == ("cancelled", "duplicate")
    [listed] = [
        one
        for one in result(env, "list_orders", customer_id=page["customer_id"])
        if one["order_id"] == order_id
    ]
    assert listed["status"] == "cancelled"
    assert changes(env)["orders"] == {
        str(order_id): {"status": "cancelled", "cancel_reason": "duplicate"}
    }
    assert refusal(env, "cancel_order", order_id=order_id, reason="fraud") == "already_cancelled"
    assert refusal(env, "change_address", order_id=order_id, address="x") == "already_cancelled"
    paid = {"order_id": order_id, "line": line, "amount_cents": 1}
    assert refusal(env, "refund_order", **paid) == "already_cancelled"


@pytest.mark.parametrize("status", ["shipped", "delivered"])
def test_what_has_left_the_house_stays_as_it_is(status):
    env = opened()
    order_id = an_order(env, status)
    assert refusal(env, "cancel_order", order_id=order_id, reason="fraud") == "already_shipped"
    assert refusal(env, "change_address", order_id=order_id, address="x") == "already_shipped"
    change = {"order_id": order_id, "line": 1, "quantity": 1}
    assert refusal(env, "change_quantity", **change) == "already_shipped"


def test_an_address_is_kept_as_it_was_given():
    env = opened()
    order_id = an_order(env, "placed")
    before = result(env, "get_order", order_id=order_id)["address"]
    assert refusal(env, "change_address", order_id=order_id, address=before) == "nothing_to_change"
    address = "1 Døne'; DROP TABLE orders; --, \U0001f600"
    result(env, "change_address", order_id=order_id, address=address)
    assert result(env, "get_order", order_id=order_id)["address"] == address
    result(env, "change_address", order_id=order_id, address=before)
    assert changes(env) == {}
    for wrong in ("", " x", "x" * 201):
        answer = ask(env, "change_address", order_id=order_id, address=wrong)
        assert answer["error"]["code"] == "tool_error"


def test_a_quantity_takes_from_the_stock_what_it_adds():
    env = opened()
    where = "o.status = 'placed' AND p.on_hand > 1"
    order_id, line, product_id, quantity, *_ = a_line(env, where)
    free = result(env, "check_stock", product_id=product_id)
    change = {"order_id": order_id, "line": line}
    assert refusal(env, "change_quantity", **change, quantity=quantity) == "nothing_to_change"
    assert refusal(env, "change_quantity", **change, quantity=quantity + free + 1) == "out_of_stock"
    result(env, "change_quantity", **change, quantity=quantity + free)
    assert result(env, "check_stock", product_id=product_id) == 0
    result(env, "change_quantity", **change, quantity=quantity)
    assert changes(env) == {}
    packed = an_order(env, "packed")
    change = {"order_id": packed, "line": 1, "quantity": 99}
    assert refusal(env, "change_quantity", **change) == "already_packed"
    change = {"order_id": order_id, "line": 9, "quantity": 1}
    assert refusal(env, "change_quantity", **change) == "not_found"


def test_refunds_in_parts_are_never_more_than_what_was_paid():
    env = opened()
    order_id, line, _, _, paid, _ = a_line(env, f"{REFUNDABLE} AND r.cents IS NULL")
    refund = {"order_id": order_id, "line": line}
    assert refusal(env, "refund_order", **refund, amount_cents=paid + 1) == "over_paid"
    result(env, "refund_order", **refund, amount_cents=paid - 1)
    assert refusal(env, "refund_order", **refund, amount_cents=2) == "over_paid"
    result(env, "refund_order", **refund, amount_cents=1)
    assert refusal(env, "refund_order", **refund, amount_cents=1) == "over_paid"
    [today] = [r for r in result(env, "list_refunds", order_id=order_id) if r["line"] == line]
    assert (today["cents"], today["made_on"]) == (paid, env._books.today())
    other = opened()
    result(other, "refund_order", **refund, amount_cents=1)
    result(other, "refund_order", **refund, amount_cents=paid - 1)
    assert other.state_hash() == env.state_hash(), "expected the parts to make no difference"


def test_what_was_refunded_before_counts():
    env = opened()
    order_id, line, _, _, paid, _ = a_line(env, f"{REFUNDABLE} AND r.cents IS NOT NULL")
    before = sum(r["cents"] for r in result(env, "list_refunds", order_id=order_id))
    refund = {"order_id": order_id, "line": line}
    assert refusal(env, "refund_order", **refund, amount_cents=paid - before + 1) == "over_paid"


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("o.status = 'placed'", "not_shipped"),
        ("s.status IN ('in_transit', 'out_for_delivery')", "not_delivered"),
        ("s.status = 'delivered' AND y.refund_days = 0", "not_refundable"),
        (
            "s.status = 'delivered' AND y.refund_days > 0 AND s.delivered_on IS NULL",
            "not_on_record",
        ),
        (
            f"s.status = 'delivered' AND y.refund_days > 0 AND {AGE} > y.refund_days",
            "window_closed",
        ),
    ],
)
def test_a_refund_needs_a_delivery_within_the_days_of_the_policy(where, reason):
    env = opened(world=5, customers=MAX_CUSTOMERS)
    order_id, line, *_ = a_line(env, where)
    refund = {"order_id": order_id, "line": line, "amount_cents": 1}
    assert refusal(env, "refund_order", **refund) == reason


def test_the_last_day_of_the_policy_still_counts():
    for world in range(100):
        env = opened(world=world)
        try:
            order_id, line, *_ = a_line(env, f"{REFUNDABLE} AND {AGE} = y.refund_days")
        except IndexError:
            continue
        result(env, "refund_order", order_id=order_id, line=line, amount_cents=1)
        return
    pytest.fail("expected one of a hundred shops to have such a line")


def test_what_was_lost_is_refunded_whatever_the_policy():
    env = opened()
    order_id, line, _, _, paid, _ = a_line(env, "s.status = 'lost'")
    result(env, "refund_order", order_id=order_id, line=line, amount_cents=paid)
    assert refusal(env, "resend_order", order_id=order_id) == "already_refunded"


LOST = "o.id IN (SELECT order_id FROM shipments WHERE status = 'lost')"
ENOUGH = (
    "(SELECT bool_and(coalesce(p.on_hand, 0) >= l.quantity) FROM order_lines l "
    "JOIN products p ON p.id = l.product_id WHERE l.order_id = o.id)"
)


def test_a_lost_parcel_is_sent_again_from_the_stock():
    env = opened(customers=MAX_CUSTOMERS)
    order_id = an_order(env, "shipped", f"{LOST} AND {ENOUGH}")
    lines = result(env, "get_order", order_id=order_id)["lines"]
    free = [result(env, "check_stock", product_id=line["product_id"]) for line in lines]
    result(env, "resend_order", order_id=order_id)
    left = [result(env, "check_stock", product_id=line["product_id"]) for line in lines]
    assert left == [f - line["quantity"] for f, line in zip(free, lines, strict=True)]
    assert result(env, "query_logistics", order_id=order_id)["status"] == "ready"
    assert refusal(env, "resend_order", order_id=order_id) == "not_lost"
    assert refusal(env, "resend_order", order_id=an_order(env, "placed")) == "not_lost"
    short = an_order(env, "shipped", f"{LOST} AND NOT {ENOUGH}")
    assert refusal(env, "resend_order", order_id=short) in ("out_of_stock", "not_on_record")


def test_pieces_that_are_put_aside_are_free_no_more():
    env = opened()
    product_id, free = first(env, "SELECT id, on_hand FROM products WHERE on_hand > 1 ORDER BY id")
    customer_id = first(env, "SELECT id FROM customers ORDER BY id")[0]
    reserve = {"product_id": product_id, "customer_id": customer_id}
    assert refusal(env, "reserve_stock", **reserve, quantity=free + 1) == "out_of_stock"
    result(env, "reserve_stock", **reserve, quantity=1)
    result(env, "reserve_stock", **reserve, quantity=free - 1)
    key = f"{product_id}/{customer_id}"
    assert changes(env) == {
        "products": {str(product_id): {"on_hand": 0}},
        "reserved": {key: {"quantity": free}},
    }
    uncounted = first(env, "SELECT id FROM products WHERE on_hand IS NULL ORDER BY id")[0]
    reserve = {"product_id": uncounted, "customer_id": customer_id, "quantity": 1}
    assert refusal(env, "reserve_stock", **reserve) == "not_on_record"
    assert refusal(env, "reserve_stock", **{**reserve, "customer_id": 0}) == "not_found"


def test_all_reasons_are_named_in_one_place():
    assert set(REASONS) == set(Reason.__args__)
    task = next(task for task in TASKS.values() if task.required_fields)
    assert all(reason in task.instruction for reason in REASONS)


# Reading


def test_a_search_needs_three_characters_and_minds_no_capitals():
    env = opened(customers=MAX_CUSTOMERS)
    name = first(env, "SELECT name FROM customers ORDER BY id")[0]
    assert result(env, "find_customers", text=name.upper()) == result(
        env, "find_customers", text=f" {name.lower()} "
    )
    for tool, text in [("find_customers", "ab"), ("find_products", "  a  ")]:
        assert ask(env, tool, text=text)["error"]["code"] == "tool_error"
    assert len(result(env, "find_customers", text="ber")) <= PAGE
    assert result(env, "find_products", text="%%%") == []


@pytest.mark.parametrize("name", READS)
def test_looking_more_often_changes_nothing_and_costs_steps(name):
    """A18: success is unaffected, the step ratio is not."""
    task = next(t for t in TASKS.values() if t.level == "L3" and t.gold[0].tool == "find_customers")
    gold, _ = play_gold(task, REGISTRY)
    arguments = {
        "order_id": 1_000,
        "customer_id": 10,
        "product_id": 100,
        "text": "lamp",
        "category": "office",
    }
    wanted = {key: arguments[key] for key in Orders.TOOLS[name].spec.parameters["properties"]}
    episode = Episode(EpisodeSpec(ENV_ID, task, task.options), Orders())
    replies = []
    for action in [call(name, **wanted)] * 2 + gold.actions:
        before = episode.state_hash
        replies.append(episode.step(episode.latest + 1, action))
        if isinstance(action, ToolCall) and action.name in READS:
            assert episode.state_hash == before
    run = Replayed(episode, replies, GoldBook(REGISTRY).find(episode))
    assert run.success
    assert episode.state_hash == gold.state_hash
    assert metrics.step_ratio(run) == (len(task.gold) + 2) / len(task.gold) > 1


@pytest.mark.parametrize("text", ["25", "25.0", "2.5e1", "250e-1"])
def test_one_amount_is_one_state(text):
    """A4: however a number is written."""
    env = opened()
    order_id, line, *_ = a_line(env, f"{REFUNDABLE} AND r.cents IS NULL")
    arguments = f'{{"order_id":{order_id}.0,"line":{line},"amount_cents":{text}}}'
    assert "fault" not in env.step(ToolCall("refund_order", arguments)).info
    plain = opened()
    result(plain, "refund_order", order_id=order_id, line=line, amount_cents=25)
    assert env.state_hash() == plain.state_hash()
    assert env.render() == plain.render()


@pytest.mark.parametrize("text", ["1e400", "NaN", "-Infinity", '"25"', "25.5", "0", "-1", "null"])
def test_no_amount_is_a_bad_argument(text):
    env = opened()
    before = env.state_hash()
    order_id, line, *_ = a_line(env, REFUNDABLE)
    arguments = f'{{"order_id":{order_id},"line":{line},"amount_cents":{text}}}'
    assert env.step(ToolCall("refund_order", arguments)).info == {"fault": "bad_arguments"}
    assert env.state_hash() == before


PAYLOADS = [
    "'; DROP TABLE orders; --",
    "${HOME}",
    "../../etc/passwd",
    "{0.__class__}",
    "[].__class__.__base__",
    "__import__('os').system('true')",
    pytest.param("a lone \ud800", id="surrogate"),
]


@pytest.mark.parametrize("payload", PAYLOADS)
def test_what_an_agent_sends_is_data(payload):
    """A20: as the name of a tool, as an argument, and as an answer."""
    task = TASKS["orders/generated/L1-001-seed1"]
    episode = Episode(EpisodeSpec(ENV_ID, task, task.options), Orders())
    order_id = an_order(episode.env, "placed")
    sent = [
        ToolCall(payload),
        call("find_customers", text=payload),
        call("refund_policy", category=payload),
        call("change_address", order_id=order_id, address=payload),
        call("cancel_order", order_id=order_id, reason=payload),
    ]
    seen = [episode.step(number, action).transition for number, action in enumerate(sent, start=1)]
    codes = [one.info.get("fault") for one in seen]
    assert codes == ["unknown_tool", None, "tool_error", None, "bad_arguments"]
    assert changes(episode.env) == {"orders": {str(order_id): {"address": payload}}}
    assert episode.step(6, Final(payload)).transition.reward == 0


@pytest.mark.parametrize(
    "value", ['""', "null", "NaN", "Infinity", '"undefined"', "false", '"0"', "[0]", "{}", ""]
)
def test_what_is_no_number_is_not_0(value):
    """A21."""
    expected = {"answer": {"pieces": 0}}
    for answer in (f'{{"pieces":{value}}}', value):
        assert not answer_fields(Ending(answer, dict, [], expected), part="answer")
    assert answer_fields(Ending('{"pieces":0.0,"more":1}', dict, [], expected), part="answer")
    assert answer_fields(Ending('{"pieces":0}', dict, [], expected["answer"]))


@pytest.mark.parametrize(
    ("answer", "expected", "holds"),
    [
        ({"ids": [2, 1]}, {"ids": [1, 2]}, True),
        ({"ids": [1, 1]}, {"ids": [1, 2]}, False),
        ({"ids": [1, 2, 2]}, {"ids": [1, 2]}, False),
        ({"ids": 1}, {"ids": [1]}, False),
        ({"ids": []}, {"ids": []}, True),
        ({"what": " Resent. "}, {"what": "resent"}, True),
        ({"what": None}, {"what": "none"}, False),
        ({"n": True}, {"n": 1}, False),
        ({}, {"n": 1}, False),
    ],
)
def test_fields_of_an_answer_are_compared_by_meaning(answer, expected, holds):
    assert answer_fields(Ending(json.dumps(answer), dict, [], expected)) is holds


# Shops


def test_a_shop_is_drawn_from_its_key():
    key = ShopKey(3, 60, 20, 10)
    assert draw_shop(key) == draw_shop(key)
    assert draw_shop(key) != draw_shop(key._replace(seed=4))
    assert open_shop(key) is open_shop(ShopKey(3, 60, 20, 10))
    tidy, gaps = (draw_shop(key._replace(missing=missing)) for missing in (0, 100))
    assert all(c.email and c.address for c in tidy.customers)
    assert all(p.on_hand is not None for p in tidy.products)
    assert not any(c.email or c.address for c in gaps.customers)
    assert not any(p.on_hand is not None for p in gaps.products)
    names = {n: [c.name for c in draw_shop(key._replace(noise=n)).customers] for n in (0, 60)}
    assert len(set(names[0])) == 60 > len(set(names[60])) + 20


@given(seed=st.integers(0, 2**63 - 1), noise=st.integers(0, 100), missing=st.integers(0, 100))
@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.too_slow])
def test_every_shop_makes_sense(seed, noise, missing):
    shop = draw_shop(ShopKey(seed, 20, noise, missing))
    [today] = shop.today
    orders = {order.id: order for order in shop.orders}
    parcels = {shipment.order_id: shipment for shipment in shop.shipments}
    assert len(orders) == len(shop.orders) >= 20
    for order in shop.orders:
        assert order.placed_on <= today.day
        assert (order.id in parcels) == (order.status in ("shipped", "delivered"))
        assert (order.cancel_reason is not None) == (order.status == "cancelled")
    for shipment in shop.shipments:
        is_there = shipment.status == "delivered"
        assert is_there == (orders[shipment.order_id].status == "delivered")
        assert orders[shipment.order_id].placed_on <= (shipment.delivered_on or "9") or not is_there
        assert shipment.delivered_on is None or shipment.delivered_on <= today.day
    paid = {(li.order_id, li.line): li.quantity * li.unit_cents for li in shop.order_lines}
    assert all(0 < r.cents <= paid[r.order_id, r.line] for r in shop.refunds)
    assert all(r.made_on <= today.day for r in shop.refunds)
    assert {line.unit_cents > 0 and line.quantity > 0 for line in shop.order_lines} == {True}


def test_what_one_session_changes_no_other_one_sees():
    one, other = opened(), opened()
    before = other.state_hash()
    order_id = an_order(one, "placed")
    result(one, "cancel_order", order_id=order_id, reason="fraud")
    fork = one.fork()
    result(fork, "cancel_order", order_id=an_order(one, "packed"), reason="fraud")
    assert len(changes(one)["orders"]) == 1
    assert len(changes(fork)["orders"]) == 2
    assert other.state_hash() == before
    assert result(other, "get_order", order_id=order_id)["status"] == "placed"
    one.reset(options=SHOP)
    assert one.state_hash() == before


def test_the_largest_shop_fits_into_its_observations():
    env = opened(customers=MAX_CUSTOMERS, noise=100, missing=0)
    for tool, text in [("find_customers", "ber"), ("find_products", "small")]:
        assert len(env.step(call(tool, text=text)).observation) < MAX_OBSERVATION // 8


def real_calls(env):
    """Calls that mostly name rows that are there."""
    ids = {
        "order_id": [row[0] for row in env._books.world.rows("SELECT id FROM orders ORDER BY id")],
        "customer_id": [c.id for c in env._books.customers()],
        "product_id": [p.id for p in env._books.products()],
        "line": [1, 2, 3],
        "quantity": [1, 2, 5, 0],
        "amount_cents": [1, 500, 2_000, 10**7 + 1],
        "text": ["ber", "lamp", "a"],
        "address": ["1 Road, Town", ""],
        "category": ["office", "none"],
        "reason": ["fraud", "no reason"],
    }

    def one(name):
        fields = Orders.TOOLS[name].spec.parameters["properties"]
        return st.fixed_dictionaries({f: st.sampled_from(ids[f]) for f in fields}).map(
            lambda arguments: call(name, **arguments)
        )

    return st.sampled_from([*WRITES, *WRITES, *READS]).flatmap(one)


@given(data=st.data())
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_no_call_fails_a_refusal_changes_nothing_and_a_replay_is_the_same(data):
    episode = Episode(EpisodeSpec(ENV_ID, None, SHOP), Orders())
    actions = data.draw(st.lists(real_calls(episode.env), max_size=25))
    replies = []
    for action in actions:
        before = episode.state_hash
        replies.append(episode.step(episode.latest + 1, action))
        if "fault" in replies[-1].transition.info or action.name in READS:
            assert episode.state_hash == before
        else:
            assert episode.state_hash != before
    assert all(p.on_hand is None or p.on_hand >= 0 for p in episode.env._books.products())
    again = Episode(EpisodeSpec(ENV_ID, None, SHOP), Orders())
    assert [again.step(number, a) for number, a in enumerate(actions, start=1)] == replies


# The tasks


def test_levels_take_as_many_calls_as_they_say():
    for task in TASKS.values():
        fewest, most = CALLS[task.level]
        assert fewest <= len(task.gold) - 1 <= most, task.task_id


@pytest.mark.parametrize("level", LEVELS)
def test_some_jobs_cannot_be_done_and_nothing_that_a_client_sees_tells_which(level):
    tasks = [task for task in TASKS.values() if task.level == level]
    impossible = [task for task in tasks if "end:impossible" in task.tags]
    assert 4 <= len(impossible) <= len(tasks) * 2 / 3
    told = [codec.task_info(task) for task in tasks]
    assert {tuple(info.tags) for info in told} == {("generated",)}
    for task in impossible:
        assert task.required_fields == ["outcome", "reason"]
        assert not [gold for gold in task.gold[:-1] if gold.tool in WRITES]
        episode, _ = play_gold(task, REGISTRY)
        answer = json.loads(episode.actions[-1].answer)
        assert answer["outcome"] == "impossible"
        assert answer["reason"] in REASONS
        assert changes(episode.env) == {}


def test_the_rules_of_the_tasks_are_of_every_kind():
    used = {rule["name"] for task in TASKS.values() for rule in task.validators}
    assert used >= {
        *("state_equals", "answer_fields", "answer_equals", "answer_number"),
        *("must_call", "must_not_call", "calls_in_order", "max_calls"),
    }


@pytest.mark.parametrize("level", LEVELS)
def test_no_product_is_searched_for_that_is_the_only_one_of_the_order(level):
    rows = [*generate(1, 24, level), *generate(2, 24, level)]
    for task in map(Task.model_validate, rows):
        episode, replies = play_gold(task, REGISTRY)
        names = [made.name for made in episode.calls]
        if names.count("get_order") == 1 and "find_products" in names:
            order = json.loads(replies[names.index("get_order")].transition.observation)["result"]
            assert len(order["lines"]) > 1, task.task_id


def test_every_change_of_a_gold_solution_changes_the_state():
    """A17: gold that changes nothing would be a fault, which the lint reports."""
    for task in TASKS.values():
        episode, replies = play_gold(task, REGISTRY)
        states = [episode.start.state_hash, *(reply.state_hash for reply in replies)]
        for made in episode.calls:
            changed = states[made.step] != states[made.step - 1]
            assert changed == (made.name in WRITES), task.task_id


def stop(order_id, reason="fraud", **fields):
    asked = {"calls": [{"tool": "cancel_order", "arguments": {}}], "answer": {}}
    asked["calls"][0]["arguments"] = {"order_id": order_id, "reason": reason}
    row = {
        "task_id": "test/stop",
        "env_id": ENV_ID,
        "level": "L1",
        "instruction": "Stop it.",
        "options": SHOP,
        "expected": json.dumps(asked),
        "validators": [
            {"name": "state_equals", "field": "changes", "part": "changes"},
            {"name": "answer_fields", "part": "answer"},
        ],
        "gold": [
            {"tool": "cancel_order", "arguments": {"order_id": order_id, "reason": reason}},
            {"final": "$expected.answer"},
        ],
    }
    return make_task(**{**row, **fields})


def found(task):
    return " | ".join(finding.message for finding in lint(task, REGISTRY))


def test_the_lint_finds_gold_that_does_not_do_what_was_asked_for():
    """A17."""
    env = opened()
    placed, shipped = an_order(env, "placed"), an_order(env, "shipped")
    assert found(stop(placed)) == ""
    final = {"final": "$expected.answer"}
    look = {"tool": "get_order", "arguments": {"order_id": placed}}
    assert "failed: state_equals" in found(stop(placed, gold=[look, final]))
    assert "gold step 1 faults: tool_error" in found(stop(shipped))
    assert found(stop(shipped, gold=[final])) == ""
    unjudged = [{"name": "state_equals", "field": "changes", "part": "changes"}]
    assert "an agent that is idle earns 1.0" in found(
        stop(shipped, gold=[final], validators=unjudged)
    )
    twice = [*stop(placed).gold[:1] * 2, final]
    rows = [g if isinstance(g, dict) else g.model_dump() for g in twice]
    assert "gold step 2 faults: tool_error" in found(stop(placed, gold=rows))
    assert "no 'reply' in what is expected" in found(
        stop(placed, gold=[{"final": "$expected.reply"}])
    )


@pytest.mark.parametrize(
    "expression",
    [
        "{",
        '{"call":[]}',
        '{"calls":[{"tool":"close_shop"}]}',
        '{"answer":{"n":{"sql":"SELECT 1, 2 FROM orders"}}}',
        '{"answer":{"n":{"sql":"DROP TABLE orders"}}}',
        '{"answer":{"n":{"sql":"SELECT * FROM duckdb_tables()"}}}',
        "SELECT id FROM users",
    ],
)
def test_an_expression_that_cannot_be_computed_is_named(expression):
    with pytest.raises(ValueError, match=r"expected|fails|gives"):
        opened().reference(expression)


def test_what_cannot_be_looked_up_cannot_be_done():
    env = opened(noise=60)
    twin = first(env, "SELECT name FROM customers GROUP BY name HAVING count(*) > 1 ORDER BY name")
    for sql, reason in [
        ("SELECT id FROM customers WHERE name = 'Nobody'", "not_found"),
        (f"SELECT id FROM customers WHERE name = '{twin[0]}'", "ambiguous"),
        ("SELECT email FROM customers WHERE email IS NULL ORDER BY id LIMIT 1", "not_on_record"),
    ]:
        end = env.reference(json.dumps({"answer": {"it": {"sql": sql}}}))
        assert end == {"changes": {}, "answer": {"outcome": "impossible", "reason": reason}}


def test_a_reference_is_computed_from_the_start_whatever_was_done_since():
    env = opened()
    order_id = an_order(env, "placed")
    asked = stop(order_id).expected
    expected = env.reference(asked)
    result(env, "cancel_order", order_id=order_id, reason="duplicate")
    assert env.reference(asked) == expected
    assert changes(env) != expected["changes"]


@pytest.mark.parametrize("level", LEVELS)
def test_no_job_is_always_impossible(level):
    """Else its words alone would tell the answer."""
    jobs = len(JOBS[level])
    rows = generate(3, 2 * jobs, level)
    for one, other in zip(rows[:jobs], rows[jobs:], strict=True):
        assert "end:done" in {*one["tags"], *other["tags"]}, one["instruction"]


def test_each_job_comes_in_its_turn():
    for level, jobs in JOBS.items():
        rows = generate(4, len(jobs) + 1, level)
        starts = [row["instruction"] for row in rows]
        assert len(set(starts)) == len(rows)
        assert all(Task.model_validate(row).max_steps >= len(row["gold"]) for row in rows)


def test_a_refused_try_is_no_success():
    task = next(
        task
        for task in TASKS.values()
        if "end:impossible" in task.tags and "Order" in task.instruction and task.level == "L1"
    )
    gold, _ = play_gold(task, REGISTRY)
    order_id = json.loads(gold.actions[0].arguments_json).get("order_id")
    episode = Episode(EpisodeSpec(ENV_ID, task, task.options), Orders())
    tried = call("cancel_order", order_id=order_id, reason="fraud")
    for action in [gold.actions[0], tried, gold.actions[-1]]:
        reply = episode.step(episode.latest + 1, action)
    assert episode.calls[1] == CallRecord(
        2, "cancel_order", {"order_id": order_id, "reason": "fraud"}, "tool_error"
    )
    assert episode.verdict["state_equals"]
    assert not episode.verdict["must_not_call"]
    assert reply.transition.reward == 0
