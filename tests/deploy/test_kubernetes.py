"""What deploy/kubernetes builds fits the service, and what does not fit is found."""

import copy
import functools
import importlib.util
from pathlib import Path

import pytest
import yaml

from logitd import __version__
from logitd.api.health import probes
from logitd.settings import Settings

KUBERNETES = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"


def load(name):
    spec = importlib.util.spec_from_file_location(f"deploy_{name}", KUBERNETES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


check, rules = load("check"), load("rules")
GIB = 1 << 30


@functools.cache
def documents(name):
    """Return what an overlay builds, or the choices that no overlay makes."""
    return check.build_choices() if name == "choices" else check.build(KUBERNETES / "overlays" / name)


@pytest.fixture(params=["cpu", "gpu", "choices"])
def built(request):
    return documents(request.param)


def of_kind(among, kind, name="logitd"):
    [found] = [one for one in among if one["kind"] == kind and one["metadata"]["name"].startswith(name)]
    return found


def container_of(among):
    [container] = of_kind(among, "Deployment")["spec"]["template"]["spec"]["containers"]
    return container


@pytest.fixture
def settings(built, monkeypatch):
    """The settings that a replica starts with."""
    values = dict(of_kind(built, "ConfigMap", "logitd-settings")["data"])
    container = container_of(built)
    for variable in container["env"]:
        if "resourceFieldRef" in variable.get("valueFrom", {}):
            assert variable["valueFrom"]["resourceFieldRef"]["resource"] == "limits.cpu"
            values[variable["name"]] = container["resources"]["limits"]["cpu"]
        elif variable["name"].startswith("LOGITD_"):
            values[variable["name"]] = variable["value"]
    for name, value in values.items():
        assert name.removeprefix("LOGITD_").lower() in Settings.model_fields, name
        monkeypatch.setenv(name, value)
    return Settings()


def test_a_replica_has_time_to_end(built, settings):
    pod = of_kind(built, "Deployment")["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > settings.drain_seconds + settings.shutdown_seconds
    assert settings.shutdown_seconds >= settings.request_timeout_seconds
    assert settings.drain_seconds > 2 * container_of(built)["readinessProbe"]["periodSeconds"]
    assert "lifecycle" not in container_of(built), "a hook puts off what SIGTERM begins"


def test_a_replica_has_the_memory_that_its_settings_allow(built, settings):
    resources = container_of(built)["resources"]
    assert resources["limits"] == resources["requests"]
    limit_bytes = int(resources["limits"]["memory"].removesuffix("Gi")) * GIB
    most_bytes = settings.max_inflight_bytes + settings.staging_pool_bytes + settings.max_sessions_bytes
    assert limit_bytes - most_bytes - settings.attention_threads * settings.max_attention_memory_bytes >= GIB


def test_probes_ask_the_admin_port_for_what_it_answers(built, settings):
    container = container_of(built)
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"http": settings.port, "admin": settings.admin_port}
    routes = {route.path for route in probes.routes}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = container[probe]["httpGet"]
        assert asked["port"] == "admin"
        assert asked["path"] in routes
    services = [one for one in built if one["kind"] == "Service"]
    assert len(services) == 2
    for service in services:
        for port in service["spec"]["ports"]:
            assert port["port"] == ports[port["targetPort"]]


def test_a_pod_may_do_nothing_that_it_need_not(built):
    pod = of_kind(built, "Deployment")["spec"]["template"]["spec"]
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "runAsGroup": 10001,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert container_of(built)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False, "a Service named logitd would set LOGITD_PORT"


def test_the_image_is_of_this_version():
    for name in ("cpu", "gpu"):
        assert container_of(documents(name))["image"].endswith(f":{__version__}")


def test_rules_are_those_of_prometheus():
    assert rules.RULE.read_text() == rules.text(), "run `make docs`"


def test_prometheus_finds_the_replicas(built):
    monitor, service = of_kind(built, "ServiceMonitor"), of_kind(built, "Service", "logitd-replicas")
    labels = service["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert labels[monitor["spec"]["jobLabel"]] == "logitd", "the alerts ask for this job"
    assert [one["port"] for one in monitor["spec"]["endpoints"]] == ["admin"]
    assert "admin" in [port["name"] for port in service["spec"]["ports"]]


def test_replicas_are_scaled_by_what_is_recorded():
    recorded = {rule.get("record") for group in rules.document()["spec"]["groups"] for rule in group["rules"]}
    scaled = of_kind(documents("cpu"), "ScaledObject")["spec"]
    queries = [trigger["metadata"]["query"] for trigger in scaled["triggers"]]
    assert {query.removeprefix("max(").split("{")[0] for query in queries} <= recorded
    asked = of_kind(documents("choices"), "HorizontalPodAutoscaler")["spec"]
    assert scaled["scaleTargetRef"]["name"] == asked["scaleTargetRef"]["name"] == "logitd"
    adapter = yaml.safe_load((KUBERNETES / "components" / "hpa" / "prometheus-adapter.yaml").read_text())
    served = {rule["name"]["as"]: rule["seriesQuery"] for rule in adapter["rules"]["external"]}
    assert {metric["external"]["metric"]["name"] for metric in asked["metrics"]} == set(served)
    assert {query.split('"')[1] for query in served.values()} <= recorded


FAULTS = [
    ("Deployment", ["spec", "minReadySeconds"], "5"),
    ("Deployment", ["spec", "replica"], 2),
    ("Deployment", ["spec", "template", "spec", "containers", 0, "readinessProbe", "httpGet", "prot"], "admin"),
    ("Service", ["spec", "ports", 0, "port"], "8000"),
    ("PodDisruptionBudget", ["spec", "maxUnavailible"], 1),
    ("NetworkPolicy", ["spec", "ingress", 0, "form"], []),
    ("ServiceMonitor", ["spec", "endpoints", 0, "port"], 8001),
    ("ServiceMonitor", ["spec", "endpoints", 0, "interval"], "15 s"),
    ("ServiceMonitor", ["metadata", "name"], "logitd_replicas"),
    ("PrometheusRule", ["spec", "groups", 0, "rules", 0, "for"], "5m"),
    ("PrometheusRule", ["spec", "groups", 0, "rules", 0, "labels"], {"level": 1}),
    ("ScaledObject", ["spec", "triggers", 0, "metadata", "threshold"], 0.05),
    ("ScaledObject", ["spec", "minReplicas"], 2),
]


@pytest.mark.parametrize(("kind", "path", "value"), FAULTS)
def test_a_planted_fault_is_found(kind, path, value):
    [document, *_] = [one for one in documents("cpu") if one["kind"] == kind]
    document = copy.deepcopy(document)
    inner = document
    for part in path[:-1]:
        inner = inner[part]
    inner[path[-1]] = value
    assert check.fault(document)


def test_a_kind_that_nobody_knows_is_a_fault():
    assert check.fault({"apiVersion": "v1", "kind": "Deploymnet", "metadata": {"name": "logitd"}})
