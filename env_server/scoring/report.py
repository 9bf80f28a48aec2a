"""A report as one HTML file: nothing is loaded from elsewhere, and nothing in it can run.

Text from a log stands in it as text only: the template escapes, pictures are images, and a
content security policy forbids scripts and every address.
"""

from __future__ import annotations

import base64
from pathlib import Path

import jinja2

from env_server.scoring import langchain
from env_server.scoring.faults import Capability
from env_server.scoring.pictures import pictures
from env_server.scoring.summary import Summary
from env_server.scoring.table import OURS, number, printable, short_env
from railgym._version import __version__

MAX_EPISODES = 2_000
"""Episodes that are listed one by one; the rest stands in scores.json."""


def render_report(summary: Summary, title: str) -> str:
    """Writes a summary as one HTML page under a heading, which is text."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("env_server.scoring"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        data_uri=_data_uri, number=number, printable=printable, short_env=short_env
    )
    return environment.get_template("report.html.j2").render(
        title=title,
        version=__version__,
        groups=summary.groups,
        totals=[group.total for group in summary.groups],
        episodes=summary.episodes[:MAX_EPISODES],
        episode_count=len(summary.episodes),
        valid_count=sum(score.valid for score in summary.episodes),
        capabilities=[capability.value for capability in Capability],
        pictures=pictures(summary),
        rewards=any(not row.success.n for row in summary.rows),
        langchain=langchain.METRICS,
        ours=OURS,
    )


def write_report(summary: Summary, path: Path, title: str) -> None:
    """Writes report.html.

    Raises:
        OSError: The file cannot be written.
    """
    path.write_text(render_report(summary, title), encoding="utf-8")


def _data_uri(svg: bytes) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode()
