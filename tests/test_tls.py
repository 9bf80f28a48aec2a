"""TLS and mutual TLS: who comes in, what others are told, and new certificates meanwhile (S16)."""

import shutil
import socket
import ssl
import subprocess
import sys
import time

import pytest
from certificates import Authority, Pair, openssl
from raw import DOG

import railgym
from env_server.registry import Registry
from env_server.service.identity import parse_tokens
from env_server.service.tls import BadCertificate, TlsFiles, server_credentials

TOKEN = "lab-0123456789abcdef"
SOON = [("grpc.initial_reconnect_backoff_ms", 100)]


@pytest.fixture(scope="module")
def ca(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("tls"), "ours")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("tls"), "strange")


@pytest.fixture
def files(ca, tmp_path):
    """A server's own files, which a test may replace."""
    found = TlsFiles(tmp_path / "server.pem", tmp_path / "server.key")
    put(ca.sign(), found)
    return found


def put(pair: Pair, files: TlsFiles) -> None:
    shutil.copy(pair.key, files.key)
    shutil.copy(pair.certificate, files.certificate)


def plays(address, **access):
    with (
        railgym.connect(address, timeout_seconds=20, **access) as client,
        client.session(task_id=DOG) as session,
    ):
        session.reset()
        return session.call("type_letter", letter="d").observation == '{"result":"d"}'


def refused(address, **access):
    """Makes a call that cannot get through, and gives what it is told, and after how long."""
    began = time.monotonic()
    with (
        railgym.connect(address, patience_seconds=0, **access) as client,
        pytest.raises(railgym.Unavailable) as caught,
    ):
        client.envs()
    assert time.monotonic() - began < 15
    assert caught.value.code == "UNAVAILABLE"
    return str(caught.value)


def served_certificate(address):
    host, _, port = address.rpartition(":")
    return ssl.get_server_certificate((host, int(port)), timeout=20)


def test_an_episode_over_tls_with_a_token(serve, files, ca):
    server = serve(Registry(), tls=files, tokens=parse_tokens(f"lab {TOKEN}", "test"))
    assert plays(server.address, tls_ca=ca.certificate, token=TOKEN)
    with railgym.connect(server.address, tls_ca=ca.certificate) as client:
        with pytest.raises(railgym.Unauthenticated):
            client.envs()
        assert client.health() == "SERVING"
    access = {"tls_ca": str(ca.certificate), "token": TOKEN}
    with railgym.make("railgym/Typewriter-v1", server.address, **access) as env:
        assert env.reset()[0] == '{"result":""}'
    envs = railgym.make_vec("railgym/TypewriterPolicy-v1", 3, server.address, **access)
    assert envs.reset()[0].shape[0] == 3
    envs.close()


def test_who_speaks_otherwise_is_told_so_and_harms_nobody(serve, files, ca, stranger):
    server, clear = serve(Registry(), tls=files), serve(Registry())
    host, _, port = server.address.rpartition(":")
    with railgym.connect(server.address, tls_ca=ca.certificate) as client:
        session = client.session(task_id=DOG)
        session.reset()
        assert refused(server.address)  # plaintext to a TLS port
        assert "CERTIFICATE_VERIFY_FAILED" in refused(server.address, tls_ca=stranger.certificate)
        assert "handshake" in refused(clear.address, tls_ca=ca.certificate).lower()
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + b"\0" * 70_000, b""):
            with socket.create_connection((host, int(port)), timeout=20) as raw_socket:
                raw_socket.sendall(garbage)
        assert session.call("type_letter", letter="d").observation == '{"result":"d"}'
        session.close()
    assert plays(server.address, tls_ca=ca.certificate)


def test_plaintext_to_a_tls_port_is_explained(serve, files):
    server = serve(Registry(), tls=files)
    assert "tls_ca" in refused(server.address)


def test_mutual_tls_asks_for_a_certificate(serve, files, ca, stranger):
    server = serve(Registry(), tls=files._replace(client_ca=ca.certificate))
    known, unknown = ca.sign(), stranger.sign()
    access = {"tls_ca": ca.certificate}
    assert plays(server.address, **access, tls_cert=known.certificate, tls_key=known.key)
    refused(server.address, **access)
    refused(server.address, **access, tls_cert=unknown.certificate, tls_key=unknown.key)
    refused(server.address)
    assert plays(server.address, **access, tls_cert=known.certificate, tls_key=known.key)


def test_a_new_certificate_is_taken_up_without_a_restart(serve, files, ca, stranger):
    server = serve(Registry(), tls=files)
    first = files.certificate.read_text()
    with railgym.connect(server.address, tls_ca=ca.certificate) as client:
        session = client.session(task_id=DOG)
        session.reset()
        assert served_certificate(server.address) in first
        put(stranger.sign(), files)
        assert served_certificate(server.address) in files.certificate.read_text()
        assert files.certificate.read_text() != first
        assert plays(server.address, tls_ca=stranger.certificate)
        refused(server.address, tls_ca=ca.certificate)
        assert session.call("type_letter", letter="d").observation == '{"result":"d"}'
        session.close()


def test_files_that_cannot_be_used_leave_the_old_ones_in_force(serve, files, ca):
    server = serve(Registry(), tls=files)
    first, following = files.certificate.read_text(), ca.sign()
    for wrong in (b"", b"no certificate", following.certificate.read_bytes()):
        files.certificate.write_bytes(wrong)  # the last one's key is not there yet
        assert served_certificate(server.address) in first
        assert plays(server.address, tls_ca=ca.certificate)
    files.certificate.unlink()
    assert served_certificate(server.address) in first
    put(following, files)
    assert served_certificate(server.address) in following.certificate.read_text()


def test_who_may_connect_is_taken_up_without_a_restart(serve, files, ca, stranger, tmp_path):
    client_ca = tmp_path / "clients.pem"
    shutil.copy(ca.certificate, client_ca)
    server = serve(Registry(), tls=files._replace(client_ca=client_ca))
    ours, theirs = (
        {"tls_ca": ca.certificate, "tls_cert": pair.certificate, "tls_key": pair.key}
        for pair in (ca.sign(), stranger.sign())
    )
    assert plays(server.address, **ours)
    refused(server.address, **theirs)
    shutil.copy(stranger.certificate, client_ca)
    assert plays(server.address, **theirs)
    refused(server.address, **ours)


def test_files_that_a_server_cannot_begin_with(files, ca, tmp_path):
    other, garbage, locked = ca.sign(), tmp_path / "garbage", tmp_path / "locked.key"
    garbage.write_text("no certificate")
    openssl("ec", "-in", files.key, "-aes256", "-passout", "pass:secret", "-out", locked)
    for wrong, says in [
        (files._replace(certificate=garbage), str(garbage)),
        (files._replace(key=garbage), str(garbage)),
        (files._replace(key=other.key), "mismatch"),
        (files._replace(key=locked), "password"),
        (files._replace(client_ca=garbage), str(garbage)),
    ]:
        with pytest.raises(BadCertificate, match=says):
            server_credentials(wrong)
    with pytest.raises(FileNotFoundError):
        server_credentials(files._replace(key=tmp_path / "nowhere"))


@pytest.mark.parametrize("half", [{"tls_cert": "a.pem"}, {"tls_key": "a.key"}])
def test_a_certificate_needs_its_key(half):
    with (
        railgym.connect("127.0.0.1:1", **half) as client,
        pytest.raises(ValueError, match="and its key"),
    ):
        client.envs()


def finished(*words, code=0):
    command = [sys.executable, "-m", "env_server.cli", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def test_the_commands_speak_tls(serve, files, ca):
    server = serve(Registry(), tls=files._replace(client_ca=ca.certificate))
    pair = ca.sign()
    access = ["--tls-ca", ca.certificate, "--tls-cert", pair.certificate, "--tls-key", pair.key]
    at = ["--address", server.address]
    assert finished("health", *at, *access) == "SERVING\n"
    assert "railgym/Typewriter-v1" in finished("envs", *at, *access)
    assert DOG in finished("tasks", "list", *at, *access)
    finished("health", *at, *access[:2], code=3)
    finished("health", *at, code=3)
    finished("envs", *at, code=3)
    assert "and its key" in finished("envs", *at, *access[:4], code=2)
    assert "nowhere" in finished("health", *at, "--tls-ca", "nowhere", code=2)


@pytest.mark.parametrize("words", [["--tls-cert"], ["--tls-key"], ["--tls-client-ca"]])
def test_serve_wants_a_certificate_and_its_key(files, tmp_path, words):
    told = finished("serve", "--log-dir", tmp_path / "log", *words, files.key, code=2)
    assert "--tls-cert and --tls-key" in told


def test_serve_says_what_is_wrong_with_a_certificate(files, tmp_path):
    told = finished(
        *("serve", "--address", "127.0.0.1:0", "--log-dir", tmp_path / "log"),
        *("--tls-cert", files.key, "--tls-key", files.key),
        code=2,
    )
    assert str(files.key) in told
    assert "Traceback" not in told
