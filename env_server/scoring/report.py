"""A report as one HTML file: nothing is loaded from elsewhere, and only our own script runs.

Text from a log stands in it as text only. What the template writes is escaped, pictures are
images, and the episodes are compressed JSON, which the script unpacks and shows as text nodes. A
content security policy allows that one script by its digest, forbids every other, and every
address. Without scripts there is a plain list of the episodes.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

import jinja2
from markupsafe import Markup

from env_server.errors import printable
from env_server.scoring import langchain
from env_server.scoring.faults import Capability
from env_server.scoring.packing import pack, result
from env_server.scoring.pictures import MAX_AGENTS, pictures
from env_server.scoring.published import beside
from env_server.scoring.summary import Summary
from env_server.scoring.table import OURS, number, short_env
from env_server.scoring.trace import Trace
from railgym._version import __version__

MAX_EPISODES = 2_000
"""Episodes that are listed where scripts do not run; the rest stands in scores.json."""

COSTS = (
    ("turns", "Turns", 1),
    ("total_tokens", "Tokens", 0),
    ("cost_usd", "USD", 4),
    ("latency_ms", "ms", 0),
)
"""What an episode took, where it was claimed: a metric, its heading in the table, its digits."""


def render_report(summary: Summary, title: str, traces: Iterable[Trace] = ()) -> str:
    """Writes a summary as one HTML page.

    Args:
        summary: What came of the log.
        title: The heading: text.
        traces: What happened in the episodes; one without a trace shows its score only.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("env_server.scoring"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        data_uri=_data_uri, number=number, printable=printable, short_env=short_env, result=result
    )
    script = _asset("report.js")
    return environment.get_template("report.html.j2").render(
        title=title,
        version=__version__,
        groups=summary.groups,
        rows=[row for group in summary.groups for row in group.rows],
        totals=[group.total for group in summary.groups],
        episodes=summary.episodes[:MAX_EPISODES],
        episode_count=len(summary.episodes),
        valid_count=sum(score.valid for score in summary.episodes),
        capabilities=[capability.value for capability in Capability],
        pictures=pictures(summary),
        agent_count=len({group.total.agent for group in summary.groups}),
        max_agents=MAX_AGENTS,
        costs=[cost for cost in COSTS if any(cost[0] in row.metrics for row in summary.rows)],
        rewards=any(not row.success.n for row in summary.rows),
        langchain=langchain.METRICS,
        ours=OURS,
        published=beside(summary.groups),
        superseded_count=len(summary.superseded),
        packed=pack([*summary.episodes, *summary.superseded], traces),
        style=Markup(_asset("report.css")),
        script=Markup(script),
        script_sha256=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def write_report(summary: Summary, path: Path, title: str, traces: Iterable[Trace] = ()) -> None:
    """Writes report.html; see `render_report`.

    Raises:
        OSError: The file cannot be written.
    """
    path.write_text(render_report(summary, title, traces), encoding="utf-8")


def _asset(name: str) -> str:
    """A file of ours that goes into the page as it is."""
    return files("env_server.scoring").joinpath("templates", name).read_text(encoding="utf-8")


def _data_uri(svg: bytes) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode()
