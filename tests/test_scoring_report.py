"""Tables and reports: they fit, and show what stands in a log as text only."""

import ast
import base64
import gzip
import hashlib
import io
import json
import re
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from xml.etree import ElementTree

import pytest
from playing import Play, calls, letters, make_task, write_log
from rich.console import Console

import env_server
from env_server.registry import Registry
from env_server.scoring import langchain, report
from env_server.scoring.pictures import MAX_AGENTS, _apart, pictures
from env_server.scoring.published import beside, published
from env_server.scoring.report import render_report, write_report
from env_server.scoring.score import score_log
from env_server.scoring.summary import summarise
from env_server.scoring.table import tables

EVIL = "<img src=x onerror=alert(1)>[red]\x1b[31m{{ 7 * 7 }}$\\frac$"
PUBLISHED = [67, 65, 58, 57, 56, 55, 49, 36, 16]  # successes of 81
DOG = make_task(tags=["langchain_steps:type_letter,type_letter,type_letter"])
EASY = make_task(task_id="test/easy", level="L1")
REGISTRY = Registry({task.task_id: task for task in (DOG, EASY)})


@pytest.fixture(scope="module")
def summary(tmp_path_factory):
    path = tmp_path_factory.mktemp("report")
    plays = [
        Play(task, typed, {"agent": agent, "trial": str(trial)}, end=end)
        for agent in ("good", EVIL)
        for task in (DOG, EASY)
        for trial, (typed, end) in enumerate(
            [(letters("dog"), None), (letters("cat"), None), (letters("d", None), "api_error")]
        )
    ]
    plays.append(Play(None, calls("pi"), env_id="railgym/MultiverseMath-v1"))
    write_log(path, plays, REGISTRY)
    return summarise(score_log(path, REGISTRY))


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.source = text
        self.tags, self.attributes, self.text = [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attributes]

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def page(summary):
    return Page(render_report(summary, EVIL))


def test_the_table_fits_a_hundred_columns_and_takes_text_as_text(summary):
    out = io.StringIO()
    Console(file=out, width=100, color_system="truecolor", force_terminal=True).print(
        tables(summary)
    )
    plain = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
    assert max(map(len, plain.splitlines())) <= 100
    assert "\x1b[31m" not in out.getvalue()
    assert "[red]" in plain.replace("\n", "")
    assert "2 api_error" in plain
    for heading in (
        "Agents",
        "Success by environment",
        "Repeats",
        *(n.split()[0] for n in langchain.METRICS),
    ):
        assert heading in plain


def test_so_many_agents_that_no_picture_could_show_them_have_the_table(summary):
    [group, *_] = [group for group in summary.groups if group.total.success.n]
    names = [f"agent {i}" for i in range(MAX_AGENTS + 1)]
    many = [group._replace(total=group.total._replace(agent=name)) for name in names]
    assert any(pictures(summary._replace(groups=many[:-1])).values())
    assert not any(pictures(summary._replace(groups=many)).values())
    assert f"Pictures of {MAX_AGENTS + 1} agents" in render_report(
        summary._replace(groups=many), "many"
    )


def test_an_empty_log_has_a_table_and_a_report():
    nothing = summarise([])
    Console(file=io.StringIO(), width=100).print(tables(nothing))
    assert "The log holds no episode." in render_report(nothing, "none")


def test_a_report_loads_nothing_and_runs_one_script_of_ours(page):
    assert not {"link", "iframe", "object", "embed", "form", "a"} & set(page.tags)
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    sources = [value for _, name, value in page.attributes if name in ("src", "href")]
    assert sources
    assert all(value.startswith("data:image/svg+xml;base64,") for value in sources)
    data = [value for tag, name, value in page.attributes if (tag, name) == ("script", "type")]
    assert set(data) == {"application/gzip"}
    assert page.tags.count("script") == len(data) + 1
    policy = next(
        value for _, name, value in page.attributes if name == "content" and "src" in value
    )
    script = (files("env_server.scoring") / "templates" / "report.js").read_bytes()
    digest = base64.b64encode(hashlib.sha256(script).digest()).decode()
    assert policy.startswith("default-src 'none'")
    assert f"script-src 'sha256-{digest}';" in policy
    assert policy.count("script-src") == 1
    assert f"<script>{script.decode()}</script>" in page.source


def test_a_report_shows_text_from_a_log_as_text(page):
    shown = EVIL.replace("\x1b", "\\x1b")
    assert page.text.count(shown) > 2
    assert page.tags.count("img") == 4


def test_the_episodes_of_a_report_are_inert_and_whole(summary, page):
    packed = re.findall(
        r'<script type="application/gzip" id="([^"]*)">([^<]*)</script>', page.source
    )
    unpacked = {name: json.loads(gzip.decompress(base64.b64decode(text))) for name, text in packed}
    listing = unpacked.pop("listing")
    assert [row[0] for row in listing["rows"]] == [score.episode_id for score in summary.episodes]
    assert all(len(row) == len(listing["columns"]) for row in listing["rows"])
    told = [episode for name in unpacked for episode in unpacked[name]]
    assert [episode["score"]["labels"] for episode in told] == [s.labels for s in summary.episodes]
    assert all(episode["trace"] is None for episode in told)


def test_pictures_are_svg_without_scripts_and_have_a_text_for_those_who_cannot_see_them(page):
    images = [value for tag, name, value in page.attributes if (tag, name) == ("img", "src")]
    texts = [value for tag, name, value in page.attributes if (tag, name) == ("img", "alt")]
    assert len(texts) == len(images) == 4
    assert all(len(text) > 30 for text in texts)
    for image in images:
        svg = base64.b64decode(image.partition(",")[2])
        kinds = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(svg).iter()}
        assert "svg" in kinds
        assert not {"script", "image", "foreignObject"} & kinds
        assert b"currentColor" in svg


def test_every_agent_stands_in_every_legend_within_the_picture(summary):
    names = [f"provider:a-model-with-a-long-name-{i}" for i in range(MAX_AGENTS)]
    [score, *_] = [score for score in summary.episodes if score.valid and score.task_id]
    scores = [score._replace(labels={"agent": name}) for name in names]
    drawn = pictures(summarise(scores))
    for name in ("success", "success_by_steps", "steps"):
        svg = drawn[name].svg.decode()
        width = float(re.search(r'viewBox="0 0 ([0-9.]+)', svg)[1])
        places = [
            re.search(rf"(?s)translate\(([0-9.]+) [^>]*>{agent}</text>", svg)
            or re.search(rf'(?s)x="([0-9.]+)"[^>]*>{agent}</text>', svg)
            for agent in names
        ]
        assert all(places), name
        letter = 9 * 0.62
        assert all(
            float(p[1]) + len(n) * letter < width for p, n in zip(places, names, strict=True)
        )


def test_marks_at_one_spot_stand_side_by_side():
    spots = {("a", "e"): (6.0, 1.0), ("b", "e"): (6.0, 1.0), ("c", "e"): (2.0, 0.0)}
    moved = _apart(spots)
    assert moved["b", "e"] - moved["a", "e"] >= 6
    assert moved["c", "e"] == 0


def test_trials_that_could_not_be_played_stand_in_the_report_with_their_reason(summary, tmp_path):
    row = {"agent": "good?seed=1", "env_id": "railgym/Orders-v1", "kind": "api_error"}
    row |= {"error": "RunStopped: <b>401</b>", "at": None}
    crash = {**row, "kind": "agent_error", "error": "ZeroDivisionError", "at": "my.py:4"}
    lines = [json.dumps(row), json.dumps(row), json.dumps(crash), '{"ag']
    (tmp_path / "failures.jsonl").write_text("\n".join(lines))
    write_report(summary, tmp_path / "report.html", "broken")
    page = (tmp_path / "report.html").read_text().split("<h2>Not played</h2>")[1]
    assert re.findall(r'bad">([^<]*)</td><td class="n">(\d+)', page)[:2] == [
        ("api_error: RunStopped: &lt;b&gt;401&lt;/b&gt;", "2"),
        ("agent_error: ZeroDivisionError, at my.py:4", "1"),
    ]
    assert 'title="good?seed=1">good seed=1</td>' in page  # for there is a "good" too
    assert "Not played" not in render_report(summary, "whole")


def test_the_picture_of_costs_is_there_where_there_are_prices(summary):
    assert pictures(summary)["success_by_cost"] is None
    assert "no valid episode has a known price" in render_report(summary, "unpriced")
    priced = summarise(
        score._replace(metrics={**score.metrics, "cost_usd": 0.25}) if score.valid else score
        for score in summary.episodes
    )
    assert "cost" in pictures(priced)["success_by_cost"].title
    assert "no valid episode has a known price" not in render_report(priced, "priced")


def test_published_results_are_those_of_the_source_and_stand_beside_ours(summary, page):
    rows = published()
    assert [sum(cell.held for cell in row.cells) for row in rows] == PUBLISHED
    assert all([cell.n for cell in row.cells] == [20, 20, 21, 20] for row in rows)
    table = beside(summary.groups)
    assert [row.agent for row in table.rows if not row.published] == [EVIL, "good"]
    ours = table.rows[0].cells[0]
    assert (ours.held, ours.n, ours.mean) == (1, 2, 0.5)  # of "dog" only, and not what is invalid
    assert table.rows[0].cells[1:] == [None, None, None]
    assert page.text.count("published") >= len(PUBLISHED)
    assert "2023-12-20" in page.text
    assert beside([group for group in summary.groups if not group.total.langchain]) is None


def test_what_is_not_valid_stands_in_the_report(page, summary):
    invalid = sum(not score.valid for score in summary.episodes)
    assert invalid == 4
    assert f"{invalid} not valid" in page.text
    assert "Not valid" in page.text
    assert "api_error" in page.text


def test_a_report_lists_only_the_first_episodes_and_says_so(summary, monkeypatch, tmp_path):
    monkeypatch.setattr(report, "MAX_EPISODES", 3)
    write_report(summary, tmp_path / "report.html", "few")
    text = (tmp_path / "report.html").read_text()
    assert f"The first 3 of {len(summary.episodes)}; all stand in scores.json" in text
    assert summary.episodes[2].episode_id in text
    assert summary.episodes[3].episode_id not in text


def test_the_same_scores_give_the_same_report(summary):
    assert render_report(summary, "same") == render_report(summary, "same")


SOURCES = sorted(Path(env_server.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize("source", SOURCES, ids=lambda p: p.name)
def test_no_text_is_ever_evaluated(source):
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in {"eval", "exec", "compile", "__import__"}
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = {alias.name for alias in node.names} | {getattr(node, "module", None)}
            assert not names & {"pickle", "marshal", "shelve", "dill", "yaml"}
