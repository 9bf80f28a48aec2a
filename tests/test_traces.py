"""Spans, as a collector of OpenTelemetry gets them from a server over OTLP."""

import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
import raw
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1 import trace_pb2
from raw import TYPEWRITER, letter

from env_server.env import Final
from env_server.service.identity import parse_tokens
from railgym.v1 import env_service_pb2 as pb
from railgym.v1 import episode_service_pb2 as episode_service
from railgym.v1.env_service_pb2_grpc import EnvServiceStub
from railgym.v1.episode_service_pb2_grpc import EpisodeServiceStub

BROKEN = "envs_for_tests:Broken"
TOKENS = parse_tokens("lab-a 5b2f0c9e7d4a41c8a6e39f1d 5", "here")
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Keeps what it is sent."""

    def __init__(self):
        self.requests = []

    def Export(self, request, context):
        self.requests.append(request)
        return trace_service_pb2.ExportTraceServiceResponse()

    def spans(self):
        """The spans by name, oldest first."""
        spans = [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        return sorted(spans, key=lambda span: span.start_time_unix_nano)

    def named(self, name):
        return [span for span in self.spans() if span.name == f"railgym.v1.{name}"]


@pytest.fixture
def collector(monkeypatch):
    collector = Collector()
    server = grpc.server(ThreadPoolExecutor(1))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    yield collector
    server.stop(None).wait()


@pytest.fixture
def traced(serve, collector):
    """Starts a server that traces; `finish` stops it, with which all spans are sent."""
    server = serve(tracing=True)
    with grpc.insecure_channel(server.address) as channel:
        yield EnvServiceStub(channel), EpisodeServiceStub(channel), lambda: serve.stop(server)


def attributes(span):
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


def test_a_call_is_a_span_that_says_what_it_was_about(traced, collector):
    envs, _, finish = traced
    session_id = raw.playing(envs, options={"target": "dog"})
    raw.step(envs, session_id, 1, letter("d"))
    raw.step(envs, session_id, 2, letter("o"))
    finish()

    created, reset, *steps = collector.spans()
    assert created.name == "railgym.v1.EnvService/CreateSession"
    assert attributes(created) == {
        "rpc.system": "grpc",
        "rpc.service": "railgym.v1.EnvService",
        "rpc.method": "CreateSession",
        "rpc.grpc.status_code": 0,
        "railgym.session_id": session_id,
        "railgym.env_id": TYPEWRITER,
    }
    assert attributes(reset)["railgym.session_id"] == session_id
    assert [attributes(step)["railgym.step"] for step in steps] == [1, 2]
    for step in steps:
        assert step.kind == trace_pb2.Span.SPAN_KIND_SERVER
        assert step.end_time_unix_nano > step.start_time_unix_nano
        assert attributes(step)["railgym.session_id"] == session_id
        assert attributes(step)["railgym.env_id"] == TYPEWRITER


def test_a_span_belongs_to_the_trace_of_the_client(traced, collector):
    envs, _, finish = traced
    metadata = [("traceparent", f"00-{TRACE}-{PARENT}-01")]
    envs.GetServerInfo(pb.GetServerInfoRequest(), metadata=metadata, timeout=raw.SECONDS)
    finish()
    (span,) = collector.spans()
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)


def test_a_client_who_does_not_want_it_sampled_is_heard(traced, collector):
    envs, _, finish = traced
    metadata = [("traceparent", f"00-{TRACE}-{PARENT}-00")]
    envs.GetServerInfo(pb.GetServerInfoRequest(), metadata=metadata, timeout=raw.SECONDS)
    finish()
    assert collector.spans() == []


def test_an_error_of_the_client_is_told_by_its_reason(traced, collector):
    envs, _, finish = traced
    raw.refusal(envs.GetSession, pb.GetSessionRequest(session_id="nobody" * 1_000))
    finish()
    (span,) = collector.spans()
    told = attributes(span)
    assert told["railgym.reason"] == "UNKNOWN_SESSION"
    assert told["rpc.grpc.status_code"] == grpc.StatusCode.NOT_FOUND.value[0]
    assert len(told["railgym.session_id"]) == 200
    assert span.status.code == trace_pb2.Status.STATUS_CODE_UNSET


def test_a_failure_of_the_server_is_an_error(traced, collector):
    envs, _, finish = traced
    session_id = raw.playing(envs, BROKEN)
    raw.refusal(envs.Step, raw.step_request(session_id, 1, 1))
    finish()
    (span,) = collector.named("EnvService/Step")
    assert span.status.code == trace_pb2.Status.STATUS_CODE_ERROR
    assert attributes(span)["railgym.reason"] == "ENV_ERROR"
    assert attributes(span)["railgym.env_id"] == BROKEN


def test_a_stream_is_one_span(traced, collector):
    envs, episodes, finish = traced
    session_id = raw.playing(envs)
    opened = pb.RolloutOpen(session=pb.CreateSessionRequest(env_id=TYPEWRITER))
    begun = pb.RolloutReset()
    rows = [pb.RolloutAction(slot=0, open=opened), pb.RolloutAction(slot=0, reset=begun)]
    requests = iter([pb.RolloutRequest(rows=[row]) for row in rows])
    assert len(list(envs.Rollout(requests, timeout=raw.SECONDS))) == 2
    request = episode_service.ReadEpisodeRequest(episode_id=f"{session_id}.1")
    raw.ask(episodes.ReadEpisode, request)
    finish()
    (rollout,) = collector.named("EnvService/Rollout")
    assert "railgym.session_id" not in attributes(rollout)
    (read,) = collector.named("EpisodeService/ReadEpisode")
    assert attributes(read)["rpc.grpc.status_code"] == 0


def test_a_stream_that_the_client_cancels_ends_its_span(traced, collector):
    envs, _, finish = traced
    opened = pb.RolloutOpen(session=pb.CreateSessionRequest(env_id=TYPEWRITER))

    def requests():
        yield pb.RolloutRequest(rows=[pb.RolloutAction(slot=0, open=opened)])
        time.sleep(2)

    stream = envs.Rollout(requests(), timeout=raw.SECONDS)
    next(stream)
    stream.cancel()
    finish()
    (span,) = collector.named("EnvService/Rollout")
    assert attributes(span)["rpc.grpc.status_code"] == grpc.StatusCode.CANCELLED.value[0]
    assert span.status.code == trace_pb2.Status.STATUS_CODE_UNSET


def test_nothing_that_an_agent_sends_or_is_told_is_in_a_span(traced, collector):
    envs, _, finish = traced
    secret = "xylophone"
    session_id = raw.playing(envs, options={"target": "dog"})
    raw.step(envs, session_id, 1, letter(secret))
    raw.refusal(envs.Step, raw.step_request(session_id, 1, letter(secret + "s")))
    raw.refusal(envs.Reset, raw.reset_request(session_id, {secret: secret}))
    raw.refusal(
        envs.RecordClaim,
        pb.RecordClaimRequest(session_id=session_id, claim_json=secret),
    )
    raw.step(envs, session_id, 2, Final(secret))
    finish()
    assert len(collector.spans()) == 7
    sent = b"".join(request.SerializeToString() for request in collector.requests)
    assert session_id.encode() in sent
    assert secret.encode() not in sent


def test_a_resource_is_named_by_the_standard_variables(serve, collector, monkeypatch):
    monkeypatch.setenv("OTEL_SERVICE_NAME", "envs-of-the-lab")
    server = serve(tracing=True)
    with grpc.insecure_channel(server.address) as channel:
        raw.create(EnvServiceStub(channel))
    serve.stop(server)
    resource = collector.requests[0].resource_spans[0].resource
    assert attributes(resource)["service.name"] == "envs-of-the-lab"
    assert attributes(resource)["service.version"]


def test_a_server_without_a_collector_serves(serve, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    server = serve(tracing=True)
    with grpc.insecure_channel(server.address) as channel:
        raw.playing(EnvServiceStub(channel))
    began = time.monotonic()
    serve.stop(server)
    assert time.monotonic() - began < 10


def test_a_call_that_is_refused_is_a_span(serve, collector):
    server = serve(tracing=True, tokens=TOKENS)
    with grpc.insecure_channel(server.address) as channel:
        raw.refusal(EnvServiceStub(channel).ListEnvs, pb.ListEnvsRequest())
    serve.stop(server)
    (span,) = collector.spans()
    assert attributes(span)["railgym.reason"] == "UNAUTHENTICATED"
