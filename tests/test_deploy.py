"""What no validator knows of the Dockerfile, compose.yaml and deploy/k8s: that they agree."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from env_server.service.server import Settings
from railgym import __version__

ROOT = Path(__file__).parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text()
GRACE_SECONDS = Settings._field_defaults["grace_seconds"]


@pytest.fixture(scope="module")
def pod():
    kubectl = Path(sys.executable).with_name("kubectl")
    if not kubectl.exists():
        pytest.skip("kubectl is not installed: make install-ci")
    command = [kubectl, "kustomize", ROOT / "deploy" / "k8s"]
    built = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    [stateful] = [m for m in yaml.safe_load_all(built) if m["kind"] == "StatefulSet"]
    return stateful["spec"]["template"]["spec"]


@pytest.fixture(scope="module")
def service():
    return yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["server"]


def one_of_dockerfile(pattern):
    [found] = re.findall(pattern, DOCKERFILE, re.MULTILINE)
    return found


def test_the_manifests_run_this_version(pod):
    assert pod["containers"][0]["image"] == f"railgym:{__version__}"


def test_there_is_more_time_to_stop_than_the_server_takes(pod, service):
    assert pod["terminationGracePeriodSeconds"] > GRACE_SECONDS
    assert int(service["stop_grace_period"].removesuffix("s")) > GRACE_SECONDS


def test_the_user_is_the_one_of_the_image(pod):
    user, group = one_of_dockerfile(r"^USER (\d+):(\d+)$")
    context = pod["securityContext"]
    assert [context["runAsUser"], context["runAsGroup"]] == [int(user), int(group)]
    assert context["fsGroup"] == int(group)


def test_the_port_is_the_one_of_the_image(pod, service):
    port = one_of_dockerfile(r"^EXPOSE (\d+)$")
    [container] = pod["containers"]
    probes = [
        container[f"{kind}Probe"]["grpc"]["port"] for kind in ("startup", "readiness", "liveness")
    ]
    assert {container["ports"][0]["containerPort"], *probes} == {int(port)}
    assert service["ports"] == [f"127.0.0.1:{port}:{port}"]


def test_the_log_is_on_the_volume(pod, service):
    log_dir = one_of_dockerfile(r"^VOLUME (\S+)$")
    mounts = {m["name"]: m["mountPath"] for m in pod["containers"][0]["volumeMounts"]}
    assert mounts["log"] == log_dir
    assert service["volumes"] == [f"log:{log_dir}"]


@pytest.mark.parametrize("name", ["requirements-server.lock", "requirements-build.lock"])
def test_the_image_gets_what_is_tested_here(name):
    tested = set((ROOT / "requirements.lock").read_text().splitlines())
    assert set((ROOT / name).read_text().splitlines()) <= tested


def test_the_image_gets_all_that_the_server_needs():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = project["dependencies"] + project["optional-dependencies"]["server"]
    lock = (ROOT / "requirements-server.lock").read_text()
    assert {Requirement(line).name for line in needed} <= set(
        re.findall(r"^([^ =]+)==", lock, re.M)
    )
