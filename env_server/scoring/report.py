"""A report as one HTML file: nothing is loaded from elsewhere, and only our own script runs.

Text from a log stands in it as text only. What the template writes is escaped, pictures are
images, and the episodes are compressed JSON, which the script unpacks and shows as text nodes. A
content security policy allows that one script by its digest, forbids every other, and every
address. Without scripts there is a plain list of the episodes.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup

from env_server.errors import printable
from env_server.scoring import langchain
from env_server.scoring.cells import number, seconds, short_env, significant, tokens
from env_server.scoring.faults import Capability
from env_server.scoring.judge import Verdict
from env_server.scoring.names import short_names
from env_server.scoring.packing import pack, result
from env_server.scoring.pictures import MAX_AGENTS, pictures
from env_server.scoring.prices import Prices, prices_with
from env_server.scoring.published import beside
from env_server.scoring.summary import Summary
from env_server.scoring.table import OURS
from env_server.scoring.trace import Trace
from env_server.scoring.unplayed import FAILURES, Unplayed, read_unplayed
from env_server.scoring.verdicts import VERDICTS, Book, benches, with_verdicts
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


class Beside(NamedTuple):
    """What is told of a run beside its scores.

    Attributes:
        unplayed: Trials that could not be played.
        verdicts: Of judges.
        prices: By which the scores were priced; they say why a cost is not known.
    """

    unplayed: Sequence[Unplayed] = ()
    verdicts: Sequence[Verdict] = ()
    prices: Prices | None = None


def render_report(
    summary: Summary, title: str, traces: Iterable[Trace] = (), also: Beside | None = None
) -> str:
    """Writes a summary as one HTML page.

    Args:
        summary: What came of the log.
        title: The heading: text.
        traces: What happened in the episodes; one without a trace shows its score only.
        also: What is told beside it.
    """
    also = also or Beside()
    every = with_verdicts([*summary.episodes, *summary.superseded], also.verdicts)
    names = short_names([*summary.names, *(trials.agent for trials in also.unplayed)])
    script = _asset("report.js")
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            **_results(summary),
            pictures=pictures(summary, names),
            title=title,
            version=__version__,
            names=names,
            longer=[full for full, short in names.items() if full and short != printable(full)],
            unplayed=also.unplayed,
            benches=benches(summary.episodes, also.verdicts),
            gaps=_gaps(summary, also.prices or prices_with()),
            packed=pack(every, traces, names),
            style=Markup(_asset("report.css")),
            script=Markup(script),
            script_sha256=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        )
    )


def write_report(
    summary: Summary,
    path: Path,
    title: str,
    traces: Iterable[Trace] = (),
    prices: Prices | None = None,
) -> None:
    """Writes report.html; see `render_report`.

    Verdicts and the trials that could not be played are read from the files beside it, if there
    are any.

    Raises:
        OSError: The file cannot be written, or one beside it cannot be read.
    """
    verdicts = Book(path.with_name(VERDICTS)).verdicts
    also = Beside(read_unplayed(path.with_name(FAILURES)), verdicts, prices)
    path.write_text(render_report(summary, title, traces, also), encoding="utf-8")


def _results(summary: Summary) -> dict[str, Any]:
    """What the template is told of the scores."""
    return {
        "groups": summary.groups,
        "headlines": summary.headlines,
        "levels": summary.levels,
        "rows": [row for group in summary.groups for row in group.rows],
        "totals": [group.total for group in summary.groups],
        "episodes": summary.episodes[:MAX_EPISODES],
        "episode_count": len(summary.episodes),
        "valid_count": sum(score.valid for score in summary.episodes),
        "superseded_count": len(summary.superseded),
        "capabilities": [capability.value for capability in Capability],
        "agent_count": len({group.total.agent for group in summary.groups}),
        "max_agents": MAX_AGENTS,
        "costs": [cost for cost in COSTS if any(cost[0] in row.metrics for row in summary.rows)],
        "rewards": any(row.valid and not row.success.n for row in summary.rows),
        "langchain": langchain.METRICS,
        "ours": OURS,
        "published": beside(summary.groups),
    }


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("env_server.scoring"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    own = (number, printable, result, seconds, short_env, significant, tokens)
    environment.filters.update({function.__name__: function for function in own})
    environment.filters["data_uri"] = _data_uri
    return environment


def _gaps(summary: Summary, prices: Prices) -> list[str]:
    """Why costs are not known."""
    unpriced = [score for score in summary.episodes if "cost_usd" not in score.metrics]
    return prices.gaps(usage for score in unpriced for usage in score.models)


def _asset(name: str) -> str:
    """A file of ours that goes into the page as it is."""
    return files("env_server.scoring").joinpath("templates", name).read_text(encoding="utf-8")


def _data_uri(svg: bytes) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode()
