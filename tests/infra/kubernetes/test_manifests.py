"""The manifests for Kubernetes: rendered, judged by Kubernetes' schemas, and free of loose ends."""

import re
import tomllib
from typing import Any

import kubernetes_validate
import pytest

from infra.local.config import ROOT
from serving.contract.records import DeploymentTimeouts
from tests.fixtures.manifests import FOLDER, Installation, rendered, selectors_within

pytestmark = pytest.mark.unit
KUBERNETES = "1.37"
FOLDERS = ("base", "overlays/example", "ship-usage")
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
PAGE = (ROOT / "docs/operate/kubernetes.md").read_text()
STAGE = re.compile(r"^FROM \S+ AS (\S+)$", re.MULTILINE)


def as_pods(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what a schema can judge: of a Ray cluster, whose schema no package has, its pods."""
    if document["kind"] != "RayCluster":
        return [document]
    pods = Installation((document,)).pods()
    head = {"apiVersion": "v1", "kind": "Pod"}
    return [
        head | {"metadata": {"name": "ray", "labels": one.labels}, "spec": one.spec} for one in pods
    ]


@pytest.mark.parametrize("folder", FOLDERS)
def test_kubernetes_knows_every_key_and_type(folder: str) -> None:
    judged = [one for document in rendered(folder) for one in as_pods(document)]
    for one in judged:
        kubernetes_validate.validate(one, KUBERNETES, strict=True)
    assert len(judged) >= len(rendered(folder)) > 1


def test_an_unknown_key_in_a_pod_of_ray_is_found(installation: Installation) -> None:
    (cluster,) = installation.of("RayCluster")
    pod = as_pods(cluster)[1]
    pod["spec"] = pod["spec"] | {"enableServiceLink": False}
    with pytest.raises(kubernetes_validate.ValidationError, match="enableServiceLink"):
        kubernetes_validate.validate(pod, KUBERNETES, strict=True)


def test_every_selector_matches_pods(installation: Installation) -> None:
    components = {each.component for each in installation.pods()}
    selectors = [each for one in installation.objects for each in selectors_within(one)]
    assert len(selectors) > 30
    for selector in selectors:
        assert installation.selected(selector), selector
        named = {value for each in selector.get("matchExpressions", []) for value in each["values"]}
        assert named <= components


def test_a_workload_selects_its_own_pods_alone(installation: Installation) -> None:
    for workload in installation.of("Deployment", "StatefulSet"):
        (pod,) = installation.selected(workload["spec"]["selector"])
        assert pod.owner == (workload["kind"], workload["metadata"]["name"])


def test_each_port_of_a_service_and_probe_is_a_pods(installation: Installation) -> None:
    for service in installation.of("Service"):
        (pod,) = installation.selected({"matchLabels": service["spec"]["selector"]})
        for port in service["spec"]["ports"]:
            assert pod.ports[port["targetPort"]] == port["port"], service["metadata"]["name"]
    probed = set()
    for pod in installation.pods():
        for container in pod.spec["containers"]:
            probes = [value for key, value in container.items() if key.endswith("Probe")]
            assert bool(probes) == ("ports" in container), container["name"]
            own = {port["name"] for port in container.get("ports", [])}
            assert {probe["httpGet"]["port"] for probe in probes} <= own
            probed |= {container["name"]} if probes else set()
    assert probed == {"control", "fleet", "gateway", "ray-head", "ray-worker"}


def test_what_a_budget_autoscaler_or_ingress_names_exists(installation: Installation) -> None:
    budgets = {each["metadata"]["name"] for each in installation.of("PodDisruptionBudget")}
    assert budgets == {"control", "worker", "gateway", "ray-worker"}
    for scaler in installation.of("HorizontalPodAutoscaler"):
        target = scaler["spec"]["scaleTargetRef"]
        workload = installation.named(target["kind"], target["name"])
        assert "replicas" not in workload["spec"]
        (container,) = workload["spec"]["template"]["spec"]["containers"]
        assert "cpu" in container["resources"]["requests"]  # a share of nothing says nothing
    (ingress,) = installation.of("Ingress")
    for rule in ingress["spec"]["rules"]:
        service = rule["http"]["paths"][0]["backend"]["service"]
        ports = installation.named("Service", service["name"])["spec"]["ports"]
        assert [port["name"] for port in ports] == [service["port"]["name"]] == ["public"]


def test_each_volume_and_account_exists(installation: Installation) -> None:
    claims = {each["metadata"]["name"] for each in installation.of("PersistentVolumeClaim")}
    accounts = {each["metadata"]["name"] for each in installation.of("ServiceAccount")}
    for stateful in installation.of("StatefulSet"):
        templates = stateful["spec"]["volumeClaimTemplates"]
        count = stateful["spec"].get("replicas", 8)
        names = [(one["metadata"]["name"], stateful["metadata"]["name"]) for one in templates]
        claims |= {f"{one}-{name}-{n}" for one, name in names for n in range(count)}
    for pod in installation.pods():
        volumes = {each["name"]: each for each in pod.spec["volumes"]}
        claimed = {
            each["persistentVolumeClaim"]["claimName"]
            for each in volumes.values()
            if "persistentVolumeClaim" in each
        }
        assert claimed <= claims
        assert pod.spec["serviceAccountName"] in accounts
        if pod.owner[0] == "StatefulSet":
            volumes |= {"data": {}}
        for container in pod.containers:
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes.keys()


def test_every_pod_is_confined(installation: Installation) -> None:
    for pod in installation.pods():
        spec, security = pod.spec, pod.spec["securityContext"]
        assert spec["automountServiceAccountToken"] is False, pod.owner
        assert security["runAsNonRoot"] is True
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod.containers:
            assert container["securityContext"] == {
                "readOnlyRootFilesystem": True,
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            }
            assert "memory" in container["resources"]["limits"]
            assert container["resources"]["requests"].keys() >= {"cpu", "memory"}


def users() -> dict[str, tuple[int, list[str]]]:
    """Return each image's user and its command's beginning, as the Containerfiles say."""
    found = {}
    for name in ("Containerfile", "Containerfile.engine"):
        _, *parts = STAGE.split((ROOT / "infra" / name).read_text())
        for stage, text in zip(parts[::2], parts[1::2], strict=True):
            if user := re.search(r"^USER (\d+)$", text, re.MULTILINE):
                entry = re.search(r'^ENTRYPOINT \["(\w+)"\]$', text, re.MULTILINE)
                assert entry
                found[f"penstock-{stage}"] = (int(user[1]), [entry[1]])
    return found


def test_each_image_is_one_that_is_built_of_this_version(installation: Installation) -> None:
    built = users()
    used = set()
    for pod in installation.pods():
        security = pod.spec["securityContext"]
        for container in pod.containers:
            name, _, tag = container["image"].rpartition("/")[2].partition(":")
            assert tag == VERSION, container["image"]
            assert built[name] == (security["runAsUser"], ["penstock"])
            assert security["runAsUser"] == security["runAsGroup"] == security["fsGroup"]
            assert "command" not in container
            used.add(name)
    assert used == built.keys()
    (upgrade,) = (each for each in installation.of("Job") if "upgrade" in each["metadata"]["name"])
    assert upgrade["metadata"]["name"] == f"upgrade-{VERSION}"


def test_a_gateway_may_end_its_longest_request(installation: Installation) -> None:
    gateway = installation.pod("gateway").spec
    (settings,) = (
        each["data"]
        for each in installation.of("ConfigMap")
        if each["metadata"]["name"].startswith("gateway-settings")
    )
    lame_duck = float(settings["PENSTOCK_LAME_DUCK_SECONDS"])
    longest = DeploymentTimeouts().total_seconds
    assert gateway["terminationGracePeriodSeconds"] >= longest + lame_duck + 60


def test_exactly_one_fleet_and_scheduler_run_and_no_journal_is_deleted(
    installation: Installation,
) -> None:
    for name in ("fleet", "scheduler"):
        assert installation.named("StatefulSet", name)["spec"]["replicas"] == 1
    gateway = installation.named("StatefulSet", "gateway")["spec"]
    retention = gateway["persistentVolumeClaimRetentionPolicy"]
    assert retention == {"whenDeleted": "Retain", "whenScaled": "Retain"}


def test_ray_outlives_its_head_and_lets_nobody_in_without_a_token(
    installation: Installation,
) -> None:
    """KubeRay makes RAY_REDIS_ADDRESS of the field for it."""
    (cluster,) = installation.of("RayCluster")
    redis = cluster["spec"]["gcsFaultToleranceOptions"]
    assert redis["redisAddress"].startswith("rediss://")
    for component in ("ray-head", "ray-worker"):
        (container,) = installation.pod(component).spec["containers"]
        variables = {each["name"]: each for each in container["env"]}
        assert int(variables["RAY_gcs_rpc_server_reconnect_timeout_s"]["value"]) >= 86_400
    for component in ("ray-head", "ray-worker", "fleet"):
        (container,) = installation.pod(component).spec["containers"]
        variables = {each["name"]: each for each in container["env"]}
        assert variables["RAY_AUTH_MODE"]["value"] == "token"
        assert variables["RAY_AUTH_TOKEN"]["valueFrom"] == {
            "secretKeyRef": {"name": "ray", "key": "auth_token"}
        }
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert extras["optional-dependencies"]["ray"] == [
        f"ray[default]=={cluster['spec']['rayVersion']}"
    ]


def test_an_operator_finds_what_to_change_and_to_bring(installation: Installation) -> None:
    external = {
        value
        for policy in installation.of("NetworkPolicy")
        for value in re.findall(r"'kubernetes.io/metadata.name': '([\w-]+)'", str(policy))
    }
    assert external == {"kube-system", "ingress", "monitoring"}
    assert all(f"`{name}`" in PAGE for name in external)
    edits = [path for path in FOLDER.rglob("*.yaml") if "EDIT" in path.read_text()]
    assert edits
    assert all(str(path.relative_to(FOLDER)) in PAGE for path in edits)
