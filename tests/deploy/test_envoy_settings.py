"""The limits and times of deploy/envoy fit those of the service."""

from pathlib import Path

import pytest
import yaml

from logitd.server import _KEEP_ALIVE_SECONDS
from logitd.settings import Settings

ENVOY = Path(__file__).resolve().parents[2] / "deploy" / "envoy"
CONFIG = yaml.safe_load((ENVOY / "envoy.yaml").read_text())
LISTENER = CONFIG["static_resources"]["listeners"][0]
MANAGER = LISTENER["filter_chains"][0]["filters"][0]["typed_config"]
[HOST] = MANAGER["route_config"]["virtual_hosts"]
CLUSTERS = {one["name"]: one for one in CONFIG["static_resources"]["clusters"]}
SETTINGS = Settings()


def seconds(text):
    return float(text.removesuffix("s"))


def test_headers_that_pass_are_no_more_than_the_service_takes():
    assert MANAGER["max_request_headers_kb"] << 10 < SETTINGS.max_header_bytes
    assert MANAGER["common_http_protocol_options"]["max_headers_count"] < SETTINGS.max_headers
    assert seconds(MANAGER["request_headers_timeout"]) <= SETTINGS.header_timeout_seconds


def test_the_service_says_first_that_time_is_over():
    for route in HOST["routes"]:
        if "route" in route:
            assert seconds(route["route"]["timeout"]) > SETTINGS.request_timeout_seconds
    idle_seconds = seconds(MANAGER["stream_idle_timeout"])
    assert idle_seconds > max(SETTINGS.body_timeout_seconds, SETTINGS.request_timeout_seconds)


@pytest.mark.parametrize("name", ["replicas", "sessions"])
def test_envoy_closes_idle_connections_before_the_service_does(name):
    [options] = CLUSTERS[name]["typed_extension_protocol_options"].values()
    assert seconds(options["common_http_protocol_options"]["idle_timeout"]) < _KEEP_ALIVE_SECONDS


def test_the_pod_has_time_and_memory_for_what_the_configuration_allows():
    [deployment, *_] = yaml.safe_load_all((ENVOY / "deployment.yaml").read_text())
    pod = deployment["spec"]["template"]["spec"]
    [container] = pod["containers"]
    longest = max(seconds(route["route"]["timeout"]) for route in HOST["routes"] if "route" in route)
    hook_seconds = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert longest < hook_seconds < pod["terminationGracePeriodSeconds"]
    heap_bytes = CONFIG["overload_manager"]["resource_monitors"][0]["typed_config"]["max_heap_size_bytes"]
    assert heap_bytes < int(container["resources"]["limits"]["memory"].removesuffix("Gi")) << 30
    ports = [one["address"]["socket_address"]["port_value"] for one in CONFIG["static_resources"]["listeners"]]
    assert ports == [port["containerPort"] for port in container["ports"]]
