"""What an operator sees on the metrics page is what happened, to the last step."""

import json
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import grpc
import pytest
import raw
from envs_for_tests import Broken
from grpc_channelz.v1 import channelz_pb2, channelz_pb2_grpc
from processes import free_port
from prometheus_client.parser import text_string_to_metric_families
from raw import TYPEWRITER, letter

from env_server.env import Final, ToolCall
from env_server.log import frames
from env_server.service.limits import Limits
from env_server.service.metrics import Metrics
from railgym.v1 import env_service_pb2 as pb
from railgym.v1 import episode_pb2
from railgym.v1 import episode_service_pb2 as episode_service
from railgym.v1.env_service_pb2_grpc import EnvServiceStub
from railgym.v1.episode_service_pb2_grpc import EpisodeServiceStub

BROKEN = "envs_for_tests:Broken"
DASHBOARD = Path(__file__).parent.parent / "deploy" / "grafana" / "railgym.json"
INFINITY = "+Inf"
LONG = {"target": "x" * 100}
NAME = re.compile("[a-z_]+")


class Page:
    """A server's page of metrics."""

    def __init__(self, address):
        self.url = f"http://{address}/metrics"

    def read(self):
        with urllib.request.urlopen(self.url, timeout=raw.SECONDS) as page:
            families = text_string_to_metric_families(page.read().decode())
            return {
                (sample.name, *sorted(sample.labels.items())): sample.value
                for family in families
                for sample in family.samples
            }

    def __call__(self, name, **labels):
        return self.read().get((name, *sorted(labels.items())))


@pytest.fixture
def seen(serve):
    """Starts a server with a page, and gives both of its services."""
    channels = []

    def start(**settings):
        address = f"127.0.0.1:{free_port()}"
        server = serve(metrics_address=address, **settings)
        channels.append(grpc.insecure_channel(server.address))
        stubs = EnvServiceStub(channels[-1]), EpisodeServiceStub(channels[-1])
        return server, Page(address), *stubs

    yield start
    for channel in channels:
        channel.close()


def fails(rpc, request):
    with pytest.raises(grpc.RpcError):
        raw.ask(rpc, request)


def eventually(read, expected):
    deadline = time.monotonic() + 20
    while (value := read()) != expected and time.monotonic() < deadline:
        time.sleep(0.1)
    assert value == expected


def test_sessions_are_counted_by_what_became_of_them(seen):
    _, page, envs, _ = seen(lease_seconds=2)
    kept, closed, late = raw.playing(envs), raw.playing(envs), raw.playing(envs)
    raw.close(envs, closed)
    raw.close(envs, closed)
    raw.close(envs, late, reason=episode_pb2.END_REASON_TIME_LIMIT)
    child = envs.ForkSession(pb.ForkSessionRequest(session_id=kept), timeout=raw.SECONDS).session_id
    assert page("railgym_sessions", env=TYPEWRITER) == 2
    assert page("railgym_sessions_created_total") == 4
    assert page("railgym_sessions_ended_total", reason="client_closed") == 1
    assert page("railgym_sessions_ended_total", reason="time_limit") == 1
    assert page("railgym_sessions_ended_total", reason="client_lost") == 0
    raw.close(envs, child)
    eventually(lambda: page("railgym_sessions_ended_total", reason="client_lost"), 1)
    assert page("railgym_sessions", env=TYPEWRITER) == 0
    fails(envs.GetSession, pb.GetSessionRequest(session_id=kept))
    assert page("railgym_rpc_errors_total", rpc="GetSession", reason="SESSION_EXPIRED") == 1


def test_steps_faults_and_ends_are_counted_by_environment(seen):
    _, page, envs, _ = seen()
    session_id = raw.playing(envs, options={"target": "cat"})
    raw.step(envs, session_id, 1, letter("c"))
    raw.step(envs, session_id, 1, letter("c"))  # a repeat
    raw.step(envs, session_id, 2, ToolCall("fly"))
    raw.step(envs, session_id, 3, ToolCall("type_letter", '{"letter": 5}'))
    raw.step(envs, session_id, 4, ToolCall("type_letter", '{"letter": 5}'))
    fails(envs.Step, raw.step_request(session_id, 9, letter("a")))
    raw.step(envs, session_id, 5, Final(""))
    other = raw.playing(envs, BROKEN)
    raw.step(envs, other, 1, 7)
    fails(envs.Step, raw.step_request(other, 2, Broken.RAISES))

    assert page("railgym_steps_total", env=TYPEWRITER) == 5
    assert page("railgym_steps_total", env=BROKEN) == 1
    assert page("railgym_step_seconds_count", env=TYPEWRITER) == 5
    assert page("railgym_step_seconds_bucket", env=TYPEWRITER, le=INFINITY) == 5
    assert page("railgym_faults_total", env=TYPEWRITER, code="unknown_tool") == 1
    assert page("railgym_faults_total", env=TYPEWRITER, code="bad_arguments") == 2
    assert page("railgym_faults_total", env=TYPEWRITER, code="refusal") == 0
    assert page("railgym_faults_total", env=BROKEN, code="bad_arguments") == 0
    assert page("railgym_episodes_ended_total", env=TYPEWRITER, reason="final") == 1
    assert page("railgym_episodes_ended_total", env=BROKEN, reason="env_error") == 1
    assert page("railgym_rpc_errors_total", rpc="Step", reason="STEP_OUT_OF_ORDER") == 1
    assert page("railgym_rpc_errors_total", rpc="Step", reason="ENV_ERROR") == 1


def test_a_slow_step_stands_in_its_bucket(seen):
    slow = "envs_for_tests:Slow"
    _, page, envs, _ = seen()
    raw.step(envs, raw.playing(envs, slow), 1, 3)  # tenths of a second
    assert page("railgym_step_seconds_bucket", env=slow, le="0.25") == 0
    assert page("railgym_step_seconds_bucket", env=slow, le=INFINITY) == 1
    assert 0.3 <= page("railgym_step_seconds_sum", env=slow) < 5


def test_the_rows_of_a_rollout_count_as_calls_do(seen):
    _, page, envs, _ = seen()
    create = pb.CreateSessionRequest(env_id=TYPEWRITER)
    step = pb.RolloutStep(action=raw.message(letter("x")))
    rows = [
        pb.RolloutAction(slot=0, open=pb.RolloutOpen(session=create)),
        pb.RolloutAction(slot=0, reset=pb.RolloutReset(seed=1, options_json=json.dumps(LONG))),
        *[pb.RolloutAction(slot=0, step=step)] * 3,
        pb.RolloutAction(slot=5, step=step),
    ]
    list(envs.Rollout(iter([pb.RolloutRequest(rows=rows)]), timeout=raw.SECONDS))
    assert page("railgym_steps_total", env=TYPEWRITER) == 3
    assert page("railgym_rpc_errors_total", rpc="Rollout", reason="BAD_REQUEST") == 1
    eventually(lambda: page("railgym_sessions_ended_total", reason="client_closed"), 1)


def test_bytes_of_the_log_are_those_on_the_disk(seen):
    server, page, envs, _ = seen()
    session_id = raw.playing(envs, options=LONG)
    for number in range(1, 20):
        raw.step(envs, session_id, number, letter("x"))
    written = sum(path.stat().st_size for path in server.log_dir.glob("*.rgl"))
    assert written > 0
    assert page("railgym_log_bytes_total") == written
    assert page("railgym_log_errors_total") == 0


def test_calls_refused_as_the_disk_is_short_are_errors_of_the_log(seen, tmp_path):
    limits = Limits(free_log_bytes=2 * shutil.disk_usage(tmp_path).free)
    _, page, envs, _ = seen(limits=limits)
    for _ in range(2):
        fails(envs.CreateSession, pb.CreateSessionRequest(env_id=TYPEWRITER))
    assert page("railgym_log_errors_total") == 2


def forge(segment, step):
    """Raises the reward of a step, as somebody would who cannot mend the hashes after it."""
    data = b""
    for frame in frames.scan(segment):
        event = episode_pb2.EpisodeEvent.FromString(frame.payload)
        if event.step_taken.step == step:
            event.step_taken.transition.reward = 1
        data += frames.encode(event.SerializeToString())
    assert data != segment.read_bytes()
    segment.write_bytes(data)


@pytest.mark.parametrize(("step", "outcome"), [(1, "UNREPLAYABLE"), (2, "DIVERGED")])
def test_a_forged_log_is_a_mismatch(seen, serve, step, outcome):
    first, _, envs, _ = seen()
    session_id = raw.playing(envs, options=LONG)
    raw.step(envs, session_id, 1, letter("x"))
    raw.step(envs, session_id, 2, letter("x"))
    serve.stop(first)
    (segment,) = first.log_dir.glob("*.rgl")
    forge(segment, step)

    _, page, envs, episodes = seen(log_dir=first.log_dir)
    raw.ask(episodes.ScoreEpisodes, episode_service.ScoreEpisodesRequest())
    assert page("railgym_replay_mismatches_total", outcome=outcome) == 1
    refused = raw.refusal(envs.Step, raw.step_request(session_id, 3, letter("x")))
    assert refused.reason == "NOT_RESUMABLE"
    assert page("railgym_replay_mismatches_total", outcome=outcome) == 2
    (other,) = {"DIVERGED", "UNREPLAYABLE"} - {outcome}
    assert page("railgym_replay_mismatches_total", outcome=other) == 0


def test_a_resume_that_diverges_is_a_mismatch(seen, serve):
    chance = "envs_for_tests:Chance"
    first, _, envs, _ = seen()
    session_id = raw.playing(envs, chance)
    raw.step(envs, session_id, 1, 1)
    serve.stop(first)
    _, page, envs, _ = seen(log_dir=first.log_dir)
    fails(envs.Step, raw.step_request(session_id, 2, 1))
    assert page("railgym_replay_mismatches_total", outcome="DIVERGED") == 1
    assert page("railgym_replay_mismatches_total", outcome="UNREPLAYABLE") == 0
    assert page("railgym_sessions", env=chance) == 0


def test_a_session_that_is_taken_up_is_live_and_not_new(seen, serve):
    first, _, envs, _ = seen()
    session_id = raw.playing(envs, options=LONG)
    raw.step(envs, session_id, 1, letter("x"))
    serve.stop(first)
    _, page, envs, _ = seen(log_dir=first.log_dir)
    raw.step(envs, session_id, 2, letter("x"))
    assert page("railgym_sessions", env=TYPEWRITER) == 1
    assert page("railgym_sessions_created_total") == 0
    assert page("railgym_steps_total", env=TYPEWRITER) == 1


def test_a_client_cannot_make_series(seen):
    _, page, envs, _ = seen()
    session_id = raw.playing(envs, options=LONG)
    before = page.read().keys()
    for number in range(1, 30):
        raw.step(envs, session_id, number, ToolCall(f"tool_{number}"))
        fails(envs.CreateSession, pb.CreateSessionRequest(env_id=f"no-such/Env-v{number}"))
    new = page.read().keys() - before
    errors = {("reason", "UNKNOWN_ENV"), ("rpc", "CreateSession")}
    assert {name for name, *labels in new if set(labels) == errors} == {
        "railgym_rpc_errors_total",
        "railgym_rpc_errors_created",
    }
    assert len(new) == 2


def test_a_name_of_no_call_is_other():
    metrics = Metrics()
    metrics.rpc_error("Drop Table", "UNAUTHENTICATED")
    metrics.rpc_error("Step", "UNAUTHENTICATED")
    assert metrics.registry.get_sample_value(
        "railgym_rpc_errors_total", {"rpc": "other", "reason": "UNAUTHENTICATED"}
    )
    assert metrics.registry.get_sample_value(
        "railgym_rpc_errors_total", {"rpc": "Step", "reason": "UNAUTHENTICATED"}
    )


def test_the_page_goes_with_the_server(seen, serve):
    server, page, _, _ = seen()
    assert any(name == "railgym_build_info" for name, *_ in page.read())
    assert page("process_resident_memory_bytes") > 1e6
    serve.stop(server)
    with pytest.raises(urllib.error.URLError):
        page.read()


def test_two_servers_count_for_themselves(seen):
    _, page, envs, _ = seen()
    _, other_page, _, _ = seen()
    raw.playing(envs, options=LONG)
    assert page("railgym_sessions_created_total") == 1
    assert other_page("railgym_sessions_created_total") == 0


def test_an_address_in_use_is_an_error(seen, serve):
    _, page, _, _ = seen()
    taken = page.url.removeprefix("http://").removesuffix("/metrics")
    with pytest.raises(OSError, match=f"cannot listen on {taken}"):
        serve(metrics_address=taken)


def queries(panel):
    yield from (target["expr"] for target in panel.get("targets", []))
    for inner in panel.get("panels", []):
        yield from queries(inner)


def test_the_dashboard_asks_for_every_metric_and_for_no_other():
    dashboard = json.loads(DASHBOARD.read_text())
    asked = " ".join(query for panel in dashboard["panels"] for query in queries(panel))
    words = {word for word in NAME.findall(asked) if word.startswith("railgym_")}
    families = list(Metrics(["some/Env-v0"]).registry.collect())
    known = {sample.name for family in families for sample in family.samples}
    known |= {f"{family.name}_total" for family in families if family.type == "counter"}
    assert words <= known, words - known
    for family in families:
        if family.name.startswith("railgym_"):
            assert any(word.startswith(family.name) for word in words), family.name


def test_the_dashboard_is_bound_to_no_data_source():
    dashboard = json.loads(DASHBOARD.read_text())
    (variable,) = [v for v in dashboard["templating"]["list"] if v["type"] == "datasource"]
    source = {"type": "prometheus", "uid": f"${{{variable['name']}}}"}
    charts = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    assert charts
    assert all(panel["datasource"] == source for panel in charts)
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_channelz_tells_of_the_server(serve):
    server = serve(channelz=True)
    with grpc.insecure_channel(server.address) as channel:
        raw.playing(EnvServiceStub(channel))
        asked = channelz_pb2.GetServersRequest()
        stub = channelz_pb2_grpc.ChannelzStub(channel)
        told = stub.GetServers(asked, timeout=raw.SECONDS)
    assert sum(one.data.calls_started for one in told.server) >= 3


def test_channelz_is_found_by_reflection(serve):
    listed = reflected(serve(channelz=True).address)
    assert "grpc.channelz.v1.Channelz" in listed


def reflected(address):
    words = [Path(sys.executable).parent / "grpcurl", "-plaintext", address, "list"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()


def test_channelz_is_off_by_default(channel):
    stub = channelz_pb2_grpc.ChannelzStub(channel)
    with pytest.raises(grpc.RpcError) as caught:
        stub.GetServers(channelz_pb2.GetServersRequest(), timeout=raw.SECONDS)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
