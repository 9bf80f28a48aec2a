"""Who may do what: operators, agents, tenants and their quotas (S16, S17)."""

import ast
import inspect
import io
import os
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
import raw
from bearer import GUARDED, HEALTH, refused, showing
from conftest import Served, ServerThread
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import free_port
from raw import DOG, letter

import railgym
from env_server.cli.exits import Failure
from env_server.cli.guard import is_loopback, operator_tokens
from env_server.registry import Registry
from env_server.service.access import AGENT_METHODS
from env_server.service.identity import (
    KEY_FILE,
    AgentTokens,
    BadTokens,
    OperatorTokens,
    UnsafeFile,
    parse_tokens,
    read_tokens,
    server_key,
)
from env_server.service.server import Settings
from railgym.v1 import env_service_pb2 as pb
from railgym.v1 import episode_service_pb2 as episode_service

LAB, SPARE, RIVAL = "lab-0123456789abcdef", "lab-fedcba9876543210", "rival-0123456789abcdef"
WRONG = "wrong-0123456789abcdef"
QUOTA = 3
TOKENS = parse_tokens(f"lab {LAB}\nlab {SPARE}\nrival {RIVAL} {QUOTA}", "test")

SESSION_CALLS = {
    "Reset": lambda session_id: pb.ResetRequest(session_id=session_id),
    "Step": lambda session_id: raw.step_request(session_id, 1, letter("d")),
    "Render": lambda session_id: pb.RenderRequest(session_id=session_id),
    "ForkSession": lambda session_id: pb.ForkSessionRequest(session_id=session_id),
    "GetSession": lambda session_id: pb.GetSessionRequest(session_id=session_id),
    "RecordClaim": lambda session_id: pb.RecordClaimRequest(session_id=session_id, claim_json="{}"),
    "CloseSession": lambda session_id: pb.CloseSessionRequest(session_id=session_id),
}
"""Every call that names a session."""

AGENT_CALLS = {method.rpartition("/")[2] for method in AGENT_METHODS}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """One server with tokens, for all tests of this file that need no server of their own."""
    log_dir = tmp_path_factory.mktemp("guarded") / "log"
    thread = ServerThread(
        Registry(), Settings(log_dir, "127.0.0.1:0", grace_seconds=1, tokens=TOKENS)
    )
    yield Served(thread.address, log_dir, thread.registry)
    thread.stop()


@pytest.fixture
def lab(guarded):
    with showing(guarded.address, LAB) as caller:
        yield caller


@pytest.fixture
def rival(guarded):
    with showing(guarded.address, RIVAL) as caller:
        yield caller


def create(caller, **fields):
    fields = {"task_id": DOG, **fields}
    return caller.envs.CreateSession(pb.CreateSessionRequest(**fields), timeout=raw.SECONDS)


def playing(caller):
    """A session with a first episode, as the operator who made it knows it."""
    created = create(caller)
    raw.reset(caller.envs, created.session_id)
    return created


def refusals(caller, calls, session_id):
    return {
        call: raw.refusal(getattr(caller.envs, call), SESSION_CALLS[call](session_id))
        for call in calls
    }


# Who shows no token, or a wrong one


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        f"Bearer {WRONG}",
        f"Basic {LAB}",
        LAB,
        f"Bearer {LAB}{LAB}",
        "Bearer a b",
    ],
)
def test_without_a_known_token_nothing_is_told(guarded, header):
    metadata = {} if header is None else {"authorization": header}
    with grpc.insecure_channel(guarded.address) as channel:
        for method in [*GUARDED, "/railgym.v1.EnvService/Nothing", "/no.such.Service/Method"]:
            refusal = refused(channel, method, **metadata)
            assert (refusal.code, refusal.reason) == ("UNAUTHENTICATED",) * 2, method
            assert refusal.metadata == {}
            assert "0123456789abcdef" not in refusal.message


def test_two_tokens_are_no_token(guarded):
    with grpc.insecure_channel(guarded.address) as channel:
        twice = [("authorization", f"Bearer {LAB}"), ("authorization", f"Bearer {RIVAL}")]
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(GUARDED[0])(b"", metadata=twice, timeout=raw.SECONDS)
    assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED


def test_health_is_open_to_all(guarded):
    assert {method.rpartition("/")[2] for method in HEALTH} >= {"Check", "Watch"}
    with showing(guarded.address) as nobody:
        stub = health_pb2_grpc.HealthStub(nobody.channel)
        assert stub.Check(health_pb2.HealthCheckRequest(), timeout=raw.SECONDS).status == 1


def test_reflection_is_open_to_operators(lab):
    stub = reflection_pb2_grpc.ServerReflectionStub(lab.channel)
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    (reply,) = stub.ServerReflectionInfo(iter([request]), timeout=raw.SECONDS)
    assert any(s.name == "railgym.v1.EnvService" for s in reply.list_services_response.service)


@pytest.mark.parametrize("token", [LAB, SPARE])
def test_an_operator_plays_and_scores(guarded, token):
    with railgym.connect(guarded.address, token=token) as client:
        with client.session(task_id=DOG) as session:
            session.reset()
            for one in "dog":
                session.call("type_letter", letter=one)
            assert session.final().reward == 1
        (score,) = client.score([f"{session.id}.1"])
    assert score.outcome == "VERIFIED"
    assert score.reward == 1


# Agents


def test_an_agent_steps_renders_and_closes_its_session(guarded, lab):
    created = playing(lab)
    with showing(guarded.address, created.agent_token) as agent:
        replies = [raw.step(agent.envs, created.session_id, 1, letter("d"))]
        replies.append(agent.envs.Render(pb.RenderRequest(session_id=created.session_id)))
        replies.append(raw.step(agent.envs, created.session_id, 2, letter("x")))
        raw.close(agent.envs, created.session_id)
        raw.close(agent.envs, created.session_id)
    shown = " ".join(map(str, replies))
    assert '"dx' in shown.replace("\\", "")
    for hidden in ("gold", "validator", "expected", created.agent_token):
        assert hidden not in shown


def test_an_agent_plays_with_the_python_client(guarded):
    with railgym.connect(guarded.address, token=LAB) as client:
        session = client.session(task_id=DOG)
        session.reset(seed=0)
        with railgym.connect(guarded.address, token=session.agent_token) as agent:
            played = agent.attach(session.id, session.env)
            for one in "dog":
                played.call("type_letter", letter=one)
            assert played.final().reward == 1
            played.close()


@pytest.mark.parametrize("method", sorted({*GUARDED} - AGENT_METHODS))
def test_an_agent_does_nothing_else(guarded, lab, method):
    created = playing(lab)
    request = pb.GetSessionRequest(session_id=created.session_id).SerializeToString()
    with showing(guarded.address, created.agent_token) as agent:
        refusal = refused(agent.channel, method, request)
    assert (refusal.code, refusal.reason) == ("PERMISSION_DENIED",) * 2
    assert refusal.metadata == {"method": method}
    assert created.session_id not in refusal.message
    assert raw.where(lab.envs, created.session_id).episode == 1


def test_an_agent_gets_no_rollout_even_for_its_own_session(guarded, lab):
    created = playing(lab)
    step = pb.RolloutStep(action=raw.message(letter("d")))
    rows = [
        pb.RolloutAction(open=pb.RolloutOpen(session=pb.CreateSessionRequest(task_id=DOG))),
        pb.RolloutAction(step=step),
    ]
    done = threading.Event()

    def idle():
        done.wait(raw.SECONDS)
        yield from ()

    with showing(guarded.address, created.agent_token) as agent:
        for requests in (iter([pb.RolloutRequest(rows=rows)]), idle()):
            with pytest.raises(grpc.RpcError) as caught:
                list(agent.envs.Rollout(requests, timeout=raw.SECONDS))
            assert caught.value.code() == grpc.StatusCode.PERMISSION_DENIED
    done.set()


def test_an_agent_is_told_nothing_of_another_session(guarded, lab, rival):
    own, other, closed, foreign = playing(lab), playing(lab), playing(lab), playing(rival)
    raw.close(lab.envs, closed.session_id)
    ids = [other.session_id, closed.session_id, foreign.session_id, "0" * 32, "", "x" * 1000]
    with showing(guarded.address, own.agent_token) as agent:
        told = [refusals(agent, AGENT_CALLS, session_id) for session_id in ids]
    raw.close(rival.envs, foreign.session_id)
    assert all(one == told[0] for one in told), "expected one answer, whatever session there is"
    assert {refusal.code for refusal in told[0].values()} == {"PERMISSION_DENIED"}
    assert raw.where(lab.envs, other.session_id).step == 0


def test_the_token_of_a_copy_is_for_the_copy_alone(guarded, lab):
    parent = playing(lab)
    copy = lab.envs.ForkSession(pb.ForkSessionRequest(session_id=parent.session_id))
    for token, session_id, other in [
        (parent.agent_token, parent.session_id, copy.session_id),
        (copy.agent_token, copy.session_id, parent.session_id),
    ]:
        with showing(guarded.address, token) as agent:
            assert raw.step(agent.envs, session_id, 1, letter("d")).observation.json
            told = refusals(agent, AGENT_CALLS, other)
        assert {refusal.code for refusal in told.values()} == {"PERMISSION_DENIED"}


def test_slots_of_a_stream_have_tokens_too(guarded, lab):
    rows = [
        pb.RolloutAction(open=pb.RolloutOpen(session=pb.CreateSessionRequest(task_id=DOG))),
        pb.RolloutAction(reset=pb.RolloutReset()),
    ]
    more = threading.Event()

    def requests():
        yield pb.RolloutRequest(rows=rows)
        more.wait(raw.SECONDS)

    stream = lab.envs.Rollout(requests(), timeout=raw.SECONDS)
    opened = next(stream).rows[0].opened
    with showing(guarded.address, opened.agent_token) as agent:
        assert raw.step(agent.envs, opened.session_id, 1, letter("d")).observation.json
    more.set()
    assert list(stream) == []


def test_the_token_of_an_expired_session_tells_when(serve, monkeypatch):
    monkeypatch.setattr("env_server.service.server.REAP_SECONDS", 0.1)
    server = serve(Registry(), tokens=TOKENS, lease_seconds=0.4)
    with showing(server.address, LAB) as lab:
        created = playing(lab)
        time.sleep(1)
        with showing(server.address, created.agent_token) as agent:
            told = refusals(agent, {"Step", "Render"}, created.session_id)
            raw.close(agent.envs, created.session_id)
        assert {refusal.reason for refusal in told.values()} == {"SESSION_EXPIRED"}
        with showing(server.address, RIVAL) as rival:
            denied = refusals(rival, SESSION_CALLS, created.session_id)
    assert {refusal.reason for refusal in denied.values()} == {"PERMISSION_DENIED"}


def test_an_agent_token_outlives_the_server_but_is_of_no_use_elsewhere(serve, tmp_path):
    first = serve(Registry(), tokens=TOKENS, log_dir=tmp_path / "log")
    with showing(first.address, LAB) as lab:
        created = playing(lab)
    serve.stop(first)
    second = serve(Registry(), tokens=TOKENS, log_dir=tmp_path / "log")
    with showing(second.address, RIVAL) as rival:  # who would take it up
        denied = refusals(rival, SESSION_CALLS, created.session_id)
    assert {refusal.reason for refusal in denied.values()} == {"PERMISSION_DENIED"}
    with showing(second.address, created.agent_token) as agent:
        assert raw.step(agent.envs, created.session_id, 1, letter("d")).observation.json
    elsewhere = serve(Registry(), tokens=TOKENS)
    with showing(elsewhere.address, created.agent_token) as agent:
        told = refusals(agent, AGENT_CALLS, created.session_id)
    assert {refusal.reason for refusal in told.values()} == {"UNAUTHENTICATED"}


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_an_altered_agent_token_is_none(data):
    agents = AgentTokens(b"k" * 32)
    token = agents.token("0123456789abcdef" * 2)
    assert agents.session_of(token) == "0123456789abcdef" * 2
    at = data.draw(st.integers(0, len(token) - 1))
    put = data.draw(st.text(max_size=2))
    altered = token[:at] + put + token[at + 1 :]
    assert (agents.session_of(altered) is None) == (altered != token)
    assert AgentTokens(b"l" * 32).session_of(token) is None


# A server without tokens


def test_an_open_server_is_open_but_keeps_an_agent_to_its_session(serve):
    server = serve(Registry())
    with showing(server.address) as anyone:
        created, other = playing(anyone), playing(anyone)
        with showing(server.address, created.agent_token) as agent:
            assert raw.step(agent.envs, created.session_id, 1, letter("d")).observation.json
            told = refusals(agent, AGENT_CALLS, other.session_id)
            assert {refusal.code for refusal in told.values()} == {"PERMISSION_DENIED"}
            for method in {*GUARDED} - AGENT_METHODS:
                assert refused(agent.channel, method).code == "PERMISSION_DENIED"
        with showing(server.address, WRONG) as mistaken:
            told = refusals(mistaken, SESSION_CALLS, created.session_id)
            assert {refusal.code for refusal in told.values()} == {"UNAUTHENTICATED"}
        assert raw.where(anyone.envs, other.session_id).step == 0


# Tenants


def test_a_tenant_is_told_nothing_of_anothers_session(lab, rival):
    live, closed = playing(lab).session_id, playing(lab).session_id
    raw.close(lab.envs, closed)
    for session_id in (live, closed):
        told = refusals(rival, SESSION_CALLS, session_id)
        for call, refusal in told.items():
            assert (refusal.code, refusal.reason) == ("PERMISSION_DENIED",) * 2
            assert refusal.metadata == {"method": f"/railgym.v1.EnvService/{call}"}
    assert refusals(rival, SESSION_CALLS, live) == refusals(rival, SESSION_CALLS, closed)
    unknown = refusals(rival, SESSION_CALLS, "0" * 32)
    assert {refusal.reason for refusal in unknown.values()} == {"UNKNOWN_SESSION"}
    assert raw.where(lab.envs, live).step == 0


def test_a_tenant_sees_its_own_episodes_only(lab, rival):
    ours, theirs = f"{playing(lab).session_id}.1", f"{playing(rival).session_id}.1"
    raw.close(rival.envs, theirs.removesuffix(".1"))
    for caller, own, other in [(lab, ours, theirs), (rival, theirs, ours)]:
        listed = raw.ask(caller.episodes.ListEpisodes, episode_service.ListEpisodesRequest())
        scored = raw.ask(caller.episodes.ScoreEpisodes, episode_service.ScoreEpisodesRequest())
        for ids in (
            {info.episode_id for info in listed.episodes},
            {reply.score.episode_id for reply in scored},
        ):
            assert own in ids
            assert other not in ids
        read = raw.ask(
            caller.episodes.ReadEpisode, episode_service.ReadEpisodeRequest(episode_id=own)
        )
        assert read[0].event.HasField("episode_started")
        for rpc, request in [
            (caller.episodes.ReadEpisode, episode_service.ReadEpisodeRequest(episode_id=other)),
            (
                caller.episodes.ScoreEpisodes,
                episode_service.ScoreEpisodesRequest(episode_ids=[own, other]),
            ),
        ]:
            with pytest.raises(grpc.RpcError) as caught:
                list(rpc(request, timeout=raw.SECONDS))
            assert railgym.errors.from_rpc_error(caught.value).reason == "UNKNOWN_EPISODE"


def test_the_keys_of_tenants_are_their_own(serve, tmp_path):
    first = serve(Registry(), tokens=TOKENS, log_dir=tmp_path / "log")
    with showing(first.address, LAB) as lab, showing(first.address, RIVAL) as rival:
        ours = create(lab, request_id="key").session_id
        theirs = create(rival, request_id="key").session_id
        assert ours != theirs
        assert create(lab, request_id="key").session_id == ours
        raw.close(lab.envs, ours)
        assert create(rival, request_id="key").session_id == theirs
        request = pb.CreateSessionRequest(task_id=DOG, request_id="key")
        assert raw.refusal(lab.envs.CreateSession, request).reason == "BAD_REQUEST"
    serve.stop(first)
    second = serve(Registry(), tokens=TOKENS, log_dir=tmp_path / "log")
    with showing(second.address, LAB) as lab, showing(second.address, RIVAL) as rival:
        assert create(rival, request_id="key").session_id == theirs
        assert raw.refusal(lab.envs.CreateSession, request).reason == "BAD_REQUEST"


def test_a_quota_is_exact_and_leaves_others_alone(serve):
    server = serve(Registry(), tokens=TOKENS)
    with showing(server.address, RIVAL) as rival, showing(server.address, LAB) as lab:
        with ThreadPoolExecutor(20) as pool:
            calls = [pool.submit(create, rival) for _ in range(20)]
        made = [call.result().session_id for call in calls if call.exception() is None]
        assert len(made) == QUOTA
        raw.reset(rival.envs, made[0])
        expected = {"tenant": "rival", "current": str(QUOTA), "max": str(QUOTA)}
        for rpc, request in [
            (rival.envs.CreateSession, pb.CreateSessionRequest(task_id=DOG)),
            (rival.envs.ForkSession, pb.ForkSessionRequest(session_id=made[0])),
        ]:
            refusal = raw.refusal(rpc, request)
            assert (refusal.code, refusal.reason) == ("RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED")
            assert refusal.metadata == expected
        opening = pb.RolloutOpen(session=pb.CreateSessionRequest(task_id=DOG))
        batch = pb.RolloutRequest(rows=[pb.RolloutAction(open=opening)])
        (reply,) = rival.envs.Rollout(iter([batch]), timeout=raw.SECONDS)
        assert dict(reply.rows[0].error.metadata) == expected
        for _ in range(QUOTA + 1):
            create(lab)
        raw.close(rival.envs, made[0])
        raw.close(rival.envs, made[0])
        assert create(rival).session_id
        assert raw.refusal(rival.envs.CreateSession, request=pb.CreateSessionRequest(task_id=DOG))


def test_expired_sessions_do_not_count(serve, monkeypatch):
    monkeypatch.setattr("env_server.service.server.REAP_SECONDS", 0.1)
    server = serve(Registry(), tokens=TOKENS, lease_seconds=0.3)
    with showing(server.address, RIVAL) as rival:
        for _ in range(2):
            for _ in range(QUOTA):
                create(rival)
            time.sleep(1)


# Tokens and keys on the disk


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("lab", "a token of 16"),
        ("lab short", "a token of 16"),
        (f"la/b {LAB}", "a tenant"),
        (f"{'x' * 65} {LAB}", "a tenant"),
        (f"lab {LAB}é", "a token of 16"),
        (f"lab {LAB} 0", "a number"),
        (f"lab {LAB} -1", "a number"),
        (f"lab {LAB} many", "a number"),
        (f"lab {LAB} 1 2", "a number"),
        (f"lab {LAB}\nother {LAB}", "another line"),
        (f"lab {LAB} 1\nlab {SPARE} 2", "another quota"),
        ("# nothing\n\n", "got none"),
        ("", "got none"),
    ],
)
def test_lines_that_are_no_tokens(line, says):
    with pytest.raises(BadTokens) as caught:
        parse_tokens(line, "tokens.txt")
    assert says in str(caught.value)
    assert str(caught.value).startswith("tokens.txt")
    assert LAB not in str(caught.value)


def test_a_token_file(tmp_path):
    path = tmp_path / "tokens"
    path.write_text(f"# ours\n\n  lab\t{LAB}  5\nlab {SPARE}\nrival {RIVAL}\n")
    for mode in (0o644, 0o602, 0o601):
        path.chmod(mode)
        with pytest.raises(UnsafeFile, match=f"chmod 600 {path}"):
            read_tokens(path)
    path.chmod(0o640)
    found = read_tokens(path)
    assert len(found) == 3
    assert found.quotas == {"lab": 5}
    assert [found.tenant_of(token) for token in (LAB, SPARE, RIVAL)] == ["lab", "lab", "rival"]
    assert [found.tenant_of(token) for token in (WRONG, "", LAB[:-1], f"{LAB} ")] == [None] * 4


def test_the_environment_may_hold_the_tokens(tmp_path, monkeypatch):
    monkeypatch.setenv("RAILGYM_TOKENS", f"lab {LAB}\nrival {RIVAL} 2")
    assert operator_tokens(None).quotas == {"rival": 2}
    with pytest.raises(Failure, match="both"):
        operator_tokens(tmp_path / "tokens")
    monkeypatch.setenv("RAILGYM_TOKENS", "")
    with pytest.raises(Failure, match="got none"):  # and not an open server
        operator_tokens(None)


def test_servers_of_one_log_share_a_key_that_nobody_else_reads(tmp_path):
    with ThreadPoolExecutor(16) as pool:
        keys = set(pool.map(server_key, [tmp_path / "log"] * 64))
    assert len(keys) == 1
    (path,) = (tmp_path / "log").iterdir()
    assert path.name == KEY_FILE
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    with pytest.raises(UnsafeFile, match="open to everyone"):
        server_key(tmp_path / "log")
    path.chmod(0o600)
    path.write_bytes(b"short")
    with pytest.raises(UnsafeFile, match="32 bytes"):
        server_key(tmp_path / "log")


@pytest.mark.parametrize("check", [OperatorTokens.tenant_of, AgentTokens.session_of])
def test_tokens_are_compared_in_constant_time(check):
    tree = ast.parse(textwrap.dedent(inspect.getsource(check)))
    nodes = list(ast.walk(tree))
    calls = {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}
    assert "hmac.compare_digest" in calls
    assert not any(isinstance(node, ast.Compare) for node in nodes)
    loops = [node for node in nodes if isinstance(node, ast.For)]
    left_early = [
        n for loop in loops for n in ast.walk(loop) if isinstance(n, ast.Return | ast.Break)
    ]
    assert left_early == []


# The command


@pytest.mark.parametrize(
    ("address", "loopback"),
    [
        ("127.0.0.1:1", True),
        ("127.8.8.8:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("192.0.2.1:1", False),
        ("example.org:1", False),
        ("localhost.example.org:1", False),
        ("127.0.0.1.example.org:1", False),
    ],
)
def test_what_is_loopback(address, loopback):
    assert is_loopback(address) == loopback


def command(*words, **variables):
    return subprocess.Popen(
        [sys.executable, "-m", "env_server.cli", *map(str, words)],
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def start():
    """Starts commands, and ends what a test leaves behind."""
    processes = []

    def begin(*words, **variables):
        processes.append(command(*words, **variables))
        return processes[-1]

    yield begin
    for process in processes:
        process.terminate()
        if process.stdout and not process.stdout.closed:
            process.communicate(timeout=60)


def finished(*words, code=0, **variables):
    process = command(*words, **variables)
    out, err = process.communicate(timeout=100)
    assert process.returncode == code, err
    return out, err


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"])
def test_it_refuses_to_serve_everyone_by_mistake(tmp_path, address):
    _, err = finished("serve", "--address", address, "--log-dir", tmp_path / "log", code=2)
    assert "--tokens" in err
    assert "--insecure" in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "log").exists()


@pytest.mark.parametrize(
    ("words", "variables"),
    [(["--insecure"], {}), ([], {"RAILGYM_TOKENS": f"lab {LAB}"})],
    ids=["insecure", "tokens"],
)
def test_it_serves_everyone_when_told_so(start, tmp_path, words, variables):
    process = start(
        "serve", "--address", "0.0.0.0:0", "--log-dir", tmp_path / "log", *words, **variables
    )
    port = process.stdout.readline().rpartition(":")[2].strip()
    process.terminate()
    process.communicate(timeout=60)
    assert int(port) > 0
    assert process.returncode == 0


def test_every_worker_knows_the_tokens_and_keeps_the_tenants_apart(start, tmp_path):
    address = f"127.0.0.1:{free_port()}"
    process = start(
        *("serve", "--address", address, "--log-dir", tmp_path / "log"),
        *("--workers", "2", "--log-level", "error"),
        RAILGYM_TOKENS=f"lab {LAB}\nrival {RIVAL}",
    )
    finished("health", "--address", address, "--wait", "60")
    ends, finished_with = set(), set()
    for _ in range(40):  # until the system has led connections to both
        with showing(address, LAB) as lab:
            created = playing(lab)
        ends.add(created.endpoint)
        with showing(created.endpoint, created.agent_token) as agent:
            assert raw.step(agent.envs, created.session_id, 1, letter("d")).observation.json
        for token in (RIVAL, None):
            with showing(created.endpoint, token) as other:
                told = refusals(other, SESSION_CALLS, created.session_id)
            finished_with |= {refusal.code for refusal in told.values()}
        if len(ends) == 2:
            break
    process.terminate()
    _, err = process.communicate(timeout=60)
    assert len(ends) == 2, err
    assert finished_with == {"PERMISSION_DENIED", "UNAUTHENTICATED"}


def test_nothing_secret_is_written_or_shown(start, tmp_path):
    """A server at its most talkative, and all that went over its wires and to its disk."""
    tokens, log_dir = tmp_path / "tokens", tmp_path / "log"
    tokens.write_text(f"lab {LAB} 2\nrival {RIVAL}\n")
    tokens.chmod(0o600)
    address = f"127.0.0.1:{free_port()}"
    process = start(
        *("serve", "--address", address, "--log-dir", log_dir, "--tokens", tokens),
        *("--log-level", "debug", "--log-format", "json"),
    )
    refused_with = io.StringIO()
    assert process.stdout.readline()
    with railgym.connect(address, token=LAB) as client:
        session = client.session(task_id=DOG)
        session.reset()
        copy = session.fork()
        with pytest.raises(railgym.QuotaExceeded) as caught:
            client.session(task_id=DOG)
        print(caught.value, caught.value.metadata, file=refused_with)
    for token in (WRONG, RIVAL, copy.agent_token, session.agent_token, None):
        with showing(address, token) as caller:
            for call, request in SESSION_CALLS.items():
                try:
                    getattr(caller.envs, call)(request(session.id), timeout=raw.SECONDS)
                except grpc.RpcError as e:
                    print(e, e.trailing_metadata(), file=refused_with)
    played = ("run", "--address", address, "--agent", "idle", "--task", DOG)
    done = finished(*played, "--name", "seen", "--out", tmp_path, RAILGYM_TOKEN=RIVAL)
    wrong = finished("envs", "--address", address, code=2, RAILGYM_TOKEN=WRONG)
    listed = finished("envs", "--address", address, RAILGYM_TOKEN=LAB)
    assert "railgym/Typewriter-v1" in listed[0]
    assert finished("health", "--address", address)[0] == "SERVING\n"
    process.terminate()
    out, err = process.communicate(timeout=60)
    assert '"permission_denied"' in err
    assert '"refused"' in err
    written = [p.read_bytes() for p in tmp_path.rglob("*") if p.is_file() and p != tokens]
    everything = b"".join(written) + repr([out, err, refused_with.getvalue(), done, wrong]).encode()
    agents = [token.rpartition(".")[2] for token in (session.agent_token, copy.agent_token)]
    for secret in (LAB, RIVAL, WRONG, *agents):
        assert secret.encode() not in everything
    assert "permission" in refused_with.getvalue().lower()


def test_no_repr_shows_a_token(guarded, tmp_path):
    with railgym.make("railgym/Typewriter-v1", guarded.address, token=LAB) as env:
        env.reset()
        session = env.session
        reprs = [env, env.spec, env.spec.kwargs, session, env._client]
        token = session.agent_token
        reprs += [TOKENS, Settings(tmp_path, tokens=TOKENS), AgentTokens(b"k" * 32)]
        shown = " ".join(map(repr, reprs))
    assert LAB not in shown
    assert token not in shown
    assert "k" * 32 not in shown


@pytest.mark.parametrize("token", ["", "a b", "a\nb", "é" * 16])
def test_what_is_no_token_is_not_sent_or_shown(token):
    with pytest.raises(ValueError, match="expected a token") as caught:
        railgym.connect(token=token)
    assert not token or token not in str(caught.value)
