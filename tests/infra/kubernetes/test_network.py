"""Who reaches whom by the network policies: what the platform needs, and nobody else."""

import re
from urllib.parse import urlsplit

import pytest

from serving.fleet.config import read_config
from tests.fixtures.manifests import Installation, Pod

pytestmark = pytest.mark.unit
NAMESPACES = ("ingress", "monitoring", "kube-system", "default")
SECRETS = {
    "control": {},
    "owner": {},
    "gateway": {},
    "fleet": {"PENSTOCK_INTERNAL_SECRET": "one that has many characters"},
    "ray": {"auth_token": "token"},
}


def who_reaches(installation: Installation, target: str, port: int) -> set[str]:
    """Return the components and other namespaces that may connect to a port."""
    pod = installation.pod(target)
    sources: list[Pod | str] = [*installation.pods(), *NAMESPACES]
    found = (each for each in sources if installation.reaches(each, pod, port))
    return {each if isinstance(each, str) else each.component for each in found}


def edges(installation: Installation) -> set[int]:
    """Return the ports on both sides of where a rule begins or ends."""
    words = str(installation.of("NetworkPolicy"))
    named = {int(port) for port in re.findall(r"'(?:port|endPort)': (\d+)", words)}
    return {port + step for port in named for step in (-1, 0, 1)}


@pytest.mark.parametrize(
    ("target", "port", "sources"),
    [
        ("control", 8700, {"ingress"}),
        ("control", 8702, {"gateway", "fleet", "ship-usage", "monitoring"}),
        ("gateway", 8701, {"ingress"}),
        ("gateway", 8703, {"monitoring"}),
        ("fleet", 8704, {"gateway", "control", "worker", "monitoring"}),
        ("ray-head", 6379, {"fleet", "ray-head", "ray-worker"}),
        ("ray-head", 10001, {"fleet"}),
        ("ray-head", 8265, {"fleet"}),
        ("ray-worker", 6380, {"ray-head", "ray-worker"}),
        ("ray-worker", 10500, {"ray-head", "ray-worker"}),
        ("ray-worker", 8080, {"monitoring"}),
        ("worker", 8700, set()),
        ("scheduler", 8700, set()),
        ("upgrade", 8700, set()),
    ],
)
def test_a_port_is_reached_by(
    target: str, port: int, sources: set[str], installation: Installation
) -> None:
    assert who_reaches(installation, target, port) == sources


def test_gateways_and_the_fleet_alone_reach_nodes_and_no_other_port_of_their_hosts(
    installation: Installation,
) -> None:
    (container,) = installation.pod("fleet").spec["containers"]
    config = read_config(installation.environment(container, SECRETS))
    nodes = range(config.replica_port_base, config.replica_port_base + config.replica_count_max)
    pod = installation.pod("ray-worker")
    for component in ("gateway", "fleet"):
        source = installation.pod(component)
        reached = {port for port in edges(installation) if installation.reaches(source, pod, port)}
        assert reached == {port for port in edges(installation) if port in nodes}
    for port in (nodes[0], nodes[-1]):
        assert who_reaches(installation, "ray-worker", port) == {"gateway", "fleet"}


def test_every_address_in_an_environment_is_a_service_that_may_be_reached(
    installation: Installation,
) -> None:
    met = set()
    head = {"engines-head-svc": installation.pod("ray-head")}  # KubeRay makes it
    for pod in installation.pods():
        for container in pod.containers:
            for name, value in installation.environment(container, SECRETS).items():
                url = urlsplit(value)
                if not url.hostname or "." in url.hostname:
                    continue
                assert url.port
                if url.hostname in head:
                    target, port = head[url.hostname], url.port
                else:
                    service = installation.named("Service", url.hostname)["spec"]
                    (target,) = installation.selected({"matchLabels": service["selector"]})
                    (port,) = (
                        target.ports[each["targetPort"]]
                        for each in service["ports"]
                        if each["port"] == url.port
                    )
                if (pod.component, name) not in {
                    ("scheduler", "PENSTOCK_FLEET_URL"),
                    ("upgrade", "PENSTOCK_FLEET_URL"),
                }:  # these two never call the fleet
                    assert installation.reaches(pod, target, port), (pod.component, value)
                met.add((pod.component, url.hostname))
    assert met >= {
        ("gateway", "control-internal"),
        ("gateway", "fleet"),
        ("fleet", "control-internal"),
        ("fleet", "engines-head-svc"),
        ("control", "fleet"),
        ("ship-usage", "control-internal"),
    }


def test_ray_listens_on_ports_that_policies_know(installation: Installation) -> None:
    (cluster,) = installation.of("RayCluster")
    groups = [cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]]
    head, worker = installation.pod("ray-head"), installation.pod("ray-worker")
    for group, pod, peer in zip(groups, (head, worker), (worker, head), strict=True):
        ports = {key: int(value) for key, value in group["rayStartParams"].items() if "port" in key}
        assert pod.ports["metrics"] == ports.pop("metrics-export-port")
        assert pod.ports["health"] == ports["dashboard-agent-listen-port"]
        assert len(ports) == 7
        assert all(installation.reaches(peer, pod, port) for port in ports.values())
