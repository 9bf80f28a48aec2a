"""The server's own messages: each line about a session says which, and none shows a secret."""

import json
import re
import subprocess
import sys
import time

import grpc
import pytest
import raw
from envs_for_tests import SECRET, Broken
from processes import free_port
from raw import TYPEWRITER, letter

from railgym.v1 import env_service_pb2 as pb
from railgym.v1.env_service_pb2_grpc import EnvServiceStub

BROKEN = "envs_for_tests:Broken"
TOKEN = "5b2f0c9e7d4a41c8a6e39f1d"
HIDDEN = "the gold answer is 42"


class Process:
    """A server in a process of its own, whose messages are kept."""

    def __init__(self, directory, *options):
        self.errors = directory / "stderr"
        self.address = f"127.0.0.1:{free_port()}"
        words = [sys.executable, "-m", "env_server.cli", "serve", "--address", self.address]
        words += ["--log-dir", str(directory / "log"), *options]
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=errors)
        self.channel = grpc.insecure_channel(self.address)
        grpc.channel_ready_future(self.channel).result(raw.SECONDS)
        self.envs = EnvServiceStub(self.channel)

    def end(self):
        self.channel.close()
        self.process.terminate()
        assert self.process.wait(30) == 0
        return self.errors.read_text()

    def lines(self):
        """Ends the server, and gives its messages, without what environments write themselves."""
        return [json.loads(line) for line in self.end().splitlines() if line.startswith("{")]


@pytest.fixture
def start(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(raw.__file__).rpartition("/")[0])
    started = []

    def begin(*options):
        started.append(Process(tmp_path, *options))
        return started[-1]

    yield begin
    for server in started:
        server.process.kill()
        server.process.wait(30)
        server.channel.close()


def by_event(lines):
    return {line["event"]: line for line in lines}


def test_the_end_of_a_session_is_one_line_and_a_step_is_none(start):
    server = start("--log-format", "json", "--lease", "1")
    closed = raw.playing(server.envs, options={"target": "dog"})
    raw.step(server.envs, closed, 1, letter("d"))
    raw.close(server.envs, closed)
    lost = raw.playing(server.envs)
    deadline = time.monotonic() + 20
    while lost not in server.errors.read_text() and time.monotonic() < deadline:
        time.sleep(0.1)
    raw.create(server.envs)  # still live when the server stops
    ends = [line for line in server.lines() if "session_id" in line]
    assert [(e["event"], e["session_id"], e["reason"], e.get("rpc")) for e in ends] == [
        ("session_ended", closed, "client_closed", "CloseSession"),
        ("session_ended", lost, "client_lost", None),
    ]
    assert all(end["env_id"] == TYPEWRITER and end["level"] == "info" for end in ends)


def test_a_failure_says_in_which_session_and_call(start):
    server = start("--log-format", "json", "--env", BROKEN)
    other, session_id = raw.playing(server.envs), raw.playing(server.envs, BROKEN)
    raw.refusal(server.envs.Step, raw.step_request(session_id, 1, Broken.RAISES))
    raw.refusal(server.envs.Step, raw.step_request(other, 7, letter("x")))
    failed = by_event(server.lines())["env_failed"]
    assert failed["session_id"] == session_id
    assert failed["rpc"] == "Step"
    assert failed["env_id"] == BROKEN
    assert failed["level"] == "error"
    assert "ZeroDivisionError" in failed["exception"]


def test_a_failing_row_of_a_rollout_says_in_which_session(start):
    server = start("--log-format", "json", "--env", BROKEN)
    opened = [
        pb.RolloutAction(slot=slot, open=pb.RolloutOpen(session=pb.CreateSessionRequest(env_id=e)))
        for slot, e in enumerate([TYPEWRITER, BROKEN, TYPEWRITER])
    ]
    resets = [pb.RolloutAction(slot=slot, reset=pb.RolloutReset()) for slot in range(3)]
    fails = pb.RolloutStep(action=raw.message(Broken.RAISES))
    steps = [pb.RolloutAction(slot=1, step=fails)]
    requests = iter([pb.RolloutRequest(rows=rows) for rows in (opened, resets, steps)])
    replies = list(server.envs.Rollout(requests, timeout=raw.SECONDS))
    failed = by_event(server.lines())["env_failed"]
    assert failed["session_id"] == replies[0].rows[1].opened.session_id
    assert failed["rpc"] == "Rollout"


def test_a_session_that_is_taken_up_says_so(start):
    first = start("--log-format", "json")
    session_id = raw.playing(first.envs, options={"target": "dog"})
    first.end()
    second = start("--log-format", "json")
    raw.step(second.envs, session_id, 1, letter("d"))
    resumed = by_event(second.lines())["session_resumed"]
    assert (resumed["session_id"], resumed["rpc"]) == (session_id, "Step")


def test_a_tenant_is_named_and_its_token_is_not(start, tmp_path):
    file = tmp_path / "tokens"
    file.write_text(f"lab-a {TOKEN} 5\n")
    file.chmod(0o600)
    server = start("--log-format", "json", "--tokens", str(file))
    metadata = [("authorization", f"Bearer {TOKEN}")]
    request = pb.CreateSessionRequest(env_id=TYPEWRITER)
    created = server.envs.CreateSession(request, metadata=metadata, timeout=raw.SECONDS)
    request = pb.CloseSessionRequest(session_id=created.session_id)
    server.envs.CloseSession(request, metadata=metadata, timeout=raw.SECONDS)
    wrong = [("authorization", f"Bearer {TOKEN[::-1]}")]
    with pytest.raises(grpc.RpcError):
        server.envs.CloseSession(request, metadata=wrong, timeout=raw.SECONDS)
    text = server.end()
    lines = by_event(map(json.loads, text.splitlines()))
    assert lines["session_ended"]["tenant"] == "lab-a"
    assert "refused" in lines
    assert TOKEN not in text
    assert TOKEN[::-1] not in text
    assert created.agent_token not in text


RAISES = """
import logging, sys
import structlog
from env_server.service.messages import configure

def fail(answer):
    raise ValueError("no such thing")

configure(sys.argv[1], "info")
for log in (structlog.get_logger(), logging.getLogger("some.library")):
    try:
        fail("the gold answer is " + str(6 * 7))
    except ValueError:
        log.exception("it failed")
logging.getLogger("some.library").info("not for this log")
"""


@pytest.mark.parametrize("form", ["console", "json"])
def test_a_trace_shows_no_values_of_variables(form):
    done = subprocess.run(
        [sys.executable, "-c", RAISES, form], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0
    assert done.stderr.count("no such thing") == 2
    assert "fail" in done.stderr
    assert HIDDEN not in done.stderr
    assert "not for this log" not in done.stderr
    if form == "json":
        own, other = map(json.loads, done.stderr.splitlines())
        assert own["event"] == other["event"] == "it failed"
        assert own["level"] == other["level"] == "error"


def test_a_trace_of_an_environment_shows_no_values_of_variables(start):
    server = start("--env", BROKEN)
    session_id = raw.playing(server.envs, BROKEN)
    raw.refusal(server.envs.Step, raw.step_request(session_id, 1, Broken.RAISES))
    text = server.end()
    assert f"ZeroDivisionError: {SECRET}" in text  # what it raised itself is for its author
    assert not re.search("self *=|action *=|locals", text)


def test_otel_without_its_extra_is_a_clear_error():
    program = [
        "import sys",
        "sys.modules['opentelemetry'] = None",
        "sys.argv = ['railgym', 'serve', '--otel']",
        "from env_server.cli import main",
        "main()",
    ]
    words = [sys.executable, "-c", "; ".join(program)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "pip install 'railgym[otel]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "example.org:9464"])
def test_metrics_are_not_shown_to_others_by_mistake(address, tmp_path):
    words = ["serve", "--metrics-address", address, "--log-dir", str(tmp_path / "log")]
    done = subprocess.run(
        [sys.executable, "-m", "env_server.cli", *words], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "--insecure" in done.stderr
