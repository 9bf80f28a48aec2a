"""The report in a real browser: 10,000 episodes, one click away, and nothing of a log ever runs."""

import json
import re

import pytest
from browsing import chromium
from playing import Play, gold, letters, make_task, write_log

from env_server.registry import Registry
from env_server.scoring.report import write_report
from env_server.scoring.score import score_log
from env_server.scoring.summary import summarise
from env_server.scoring.trace import traces
from railgym import Final, ToolCall

EPISODES = 10_000
SECONDS = 3
EVIL = (
    "<script>window.ran=1</script></script></noscript>-->"
    "<img src=x onerror=window.ran=1>"
    "<a href='javascript:window.ran=1'>\u2028\u2029\u202e\x1b&amp;{{7*7}}"
)
BIG = "9007199254740993"
CLAIM = {
    "kind": "model_call",
    "turn": 1,
    "provider": "test",
    "model": EVIL,
    "usage": {"input": 10, "cache_read": 9000, "cache_write_5m": 1000, "output": 50},
    "latency_ms": 812.0,
    "retries": [{"status": 429}],
    "stop": "tool_use",
    "error": None,
}
ODD = {name: 1 for name in ("toString", "valueOf", "toLocaleString", "toJSON")}
ODD_CLAIM = {
    "kind": "model_call",
    **dict.fromkeys(("turn", "model", "latency_ms", "queue_ms", "retries", "stop"), ODD),
    "usage": {"input": ODD, "cache_read": ODD, "output": 5},
    "error": {"status": ODD, "message": ODD},
}
"""Objects that cannot become text or a number, where such are expected."""

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def registry():
    registry = Registry()
    evil = make_task(task_id="test/evil", instruction=EVIL)
    return Registry({**registry.tasks, evil.task_id: evil})


def evil_play(registry):
    """Two turns of hostile text in every place that an agent can write to."""
    actions = [
        ToolCall("type_letter", '{"letter": "d"}'),
        ToolCall(EVIL, json.dumps({"lone": "\ud800", "tag": EVIL})),
        ToolCall("type_letter", f'{{"letter": {BIG}}}'),
        Final(EVIL),
    ]
    labels = {"agent": EVIL, "trial": "1", EVIL: EVIL}
    return Play(
        registry.task("test/evil"),
        actions,
        labels,
        turns=[1, 1, 2, 2],
        claims=[CLAIM, {**CLAIM, "turn": 7}, {"text": EVIL}, ODD_CLAIM],
    )


@pytest.fixture(scope="module")
def reports(registry, tmp_path_factory):
    """The report of 10,000 episodes, of which the second is hostile."""
    folder = tmp_path_factory.mktemp("reports")
    quick = [task for task in registry.tasks.values() if "Relational" not in task.env_id]
    tasks = [task for task in quick if "reference" in task.tags]
    golds = {task.task_id: gold(task, registry) for task in tasks}
    plays = [
        Play(
            task := tasks[i % len(tasks)],
            golds[task.task_id] if i % 3 else letters("no"),
            {"agent": f"agent {i % 3}", "trial": str(i)},
        )
        for i in range(EPISODES - 1)
    ]
    plays.insert(1, evil_play(registry))
    write_log(folder / "log", plays, registry)
    summary = summarise(score_log(folder / "log", registry))
    write_report(summary, folder / "report.html", EVIL, traces(folder / "log", registry))
    return folder


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


class Opened:
    """A page, with what it asked for and what went wrong in it."""

    def __init__(self, browser, path, **options):
        self.requests, self.errors = [], []
        self.page = browser.new_page(viewport={"width": 1400, "height": 1000}, **options)
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda message: self.errors.append(message.text))
        self.address = path.as_uri()
        self.page.goto(self.address)

    def listed(self):
        self.page.wait_for_function("performance.getEntriesByName('episodes-listed').length > 0")
        return self

    def texts(self, selector):
        return self.page.locator(selector).all_inner_texts()

    def open(self, number):
        self.page.locator("#rows > tr > td button").nth(number).click()
        self.page.wait_for_selector(".episode")
        return self.page.locator(".episode").first.inner_text()


@pytest.fixture
def opened(browser, reports):
    opened = Opened(browser, reports / "report.html").listed()
    yield opened
    opened.page.close()


def test_ten_thousand_episodes_open_in_three_seconds_and_one_by_click(opened, reports):
    times = opened.page.evaluate(
        "[performance.getEntriesByType('navigation')[0].loadEventEnd,"
        " performance.getEntriesByName('episodes-listed')[0].startTime]"
    )
    assert all(0 < time < SECONDS * 1000 for time in times)
    assert opened.texts("#count") == ["10,000 of 10,000 episodes, page 1 of 200"]
    assert len(opened.texts("#rows > tr")) == 50
    text = opened.open(3)
    opened.page.screenshot(path=reports / "report.png", full_page=True)
    assert "Step 1 tool call" in text
    opened.page.locator("#rows > tr > td button").nth(3).click()
    assert opened.texts(".episode") == []


def test_nothing_from_a_log_runs_and_nothing_is_loaded(opened):
    text = opened.open(1)
    shown = re.sub(r"[\u2028\u2029\u202e\x1b]", lambda c: f"\\u{{{ord(c[0]):x}}}", EVIL)
    assert text.count(shown) >= 5  # the task, the tool, the answer, the labels, the model
    assert '"lone": "\\ud800"' in text
    assert BIG in text
    opened.page.wait_for_timeout(300)
    assert opened.page.evaluate("window.ran === undefined")
    assert opened.page.locator("img:not([src^='data:image/svg'])").count() == 0
    assert opened.page.locator(".episode a, .episode img, .episode script").count() == 0
    assert opened.errors == []
    assert [u for u in opened.requests if not u.startswith("data:image/svg")] == [opened.address]


def test_an_episode_shows_turns_claims_faults_state_changes_and_the_verdict(opened):
    text = opened.open(1)
    assert re.search(
        r"(?s)Turn 1\s+model .{,300}?tokens in 10,010\s+of them cached 9,000\s+out 50", text
    )
    assert "latency 812 ms" in text
    assert "retries 1" in text
    assert "paper" in opened.texts(".changes")[0]
    assert '"d"' in opened.texts(".changes")[0]
    assert opened.texts(".step .mark.bad") == ["unknown_tool", "bad_arguments"]
    assert "✗ state_equals" in text
    assert "Other claims" in text
    assert text.count("Turn ") == 2


@pytest.mark.parametrize("width", [1280, 700])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_opened_episode_is_as_wide_as_the_page_and_moves_nothing(
    browser, reports, width, scheme
):
    opened = Opened(browser, reports / "report.html", color_scheme=scheme).listed()
    opened.page.set_viewport_size({"width": width, "height": 900})
    button = opened.page.locator("#rows > tr > td button").nth(1)
    before = button.bounding_box()["x"]
    opened.open(1)
    assert button.bounding_box()["x"] == before
    episode = opened.page.locator(".episode")
    right = episode.evaluate(
        "e => Math.max(...[e, ...e.querySelectorAll('*')].map("
        "n => n.getBoundingClientRect().right))"
    )
    assert 0 < right <= width
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    opened.page.close()


def test_the_list_is_filtered_sorted_and_turned_by_pages(opened):
    page = opened.page
    page.locator("[id='filter-agent']").select_option(label="agent 0")
    assert opened.texts("#count")[0].startswith("3,333 of")
    page.locator("[id='filter-result']").select_option(label="success")
    assert opened.texts("#count")[0].startswith("0 of")
    page.locator("[id='filter-agent']").select_option(label="any agent")
    page.locator("#heads button", has_text="steps").click()
    fewest = opened.texts("#rows > tr:first-child > td.n")[0]
    page.locator("#heads button", has_text="steps").click()
    most = opened.texts("#rows > tr:first-child > td.n")[0]
    assert int(fewest) == 2
    assert int(most) == len("communication") + 1  # and the answer
    assert page.locator("#heads th[aria-sort]").get_attribute("aria-sort") == "descending"
    page.locator("#next").click()
    assert ", page 2 of " in opened.texts("#count")[0]
    page.locator("#find").fill("reference/communication")
    assert all("communication" in text for text in opened.texts("#rows > tr"))
    assert opened.texts("#rows > tr")


def test_without_scripts_there_is_a_plain_list(browser, reports):
    opened = Opened(browser, reports / "report.html", java_script_enabled=False)
    assert "The first 2,000 of 10,000" in opened.texts("noscript")[0]
    assert opened.page.locator("noscript tbody tr").count() == 2_000
    assert not opened.page.locator("#episodes").is_visible()
    opened.page.close()


def test_a_script_that_was_altered_or_slipped_in_does_not_run(browser, reports):
    text = (reports / "report.html").read_text()
    altered = text.replace('"use strict";', '"use strict"; window.ran = 1;')
    altered = altered.replace("<h2>Success</h2>", "<script>window.ran = 2</script>")
    assert altered != text
    (reports / "altered.html").write_text(altered)
    opened = Opened(browser, reports / "altered.html")
    assert opened.page.evaluate("window.ran === undefined")
    assert len([error for error in opened.errors if "Content Security Policy" in error]) == 2
    opened.page.close()
