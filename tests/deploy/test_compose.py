"""What deploy/compose.yaml says fits the service, the image and the files beside it."""

from pathlib import Path

import pytest
import yaml

from logitd import __version__
from logitd.settings import Settings

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES = COMPOSE["services"]
LOGITD = SERVICES["logitd"]


@pytest.fixture
def settings(monkeypatch):
    """The settings that the container starts with, the image's own included."""
    for name, value in ({"LOGITD_HOST": "0.0.0.0", "LOGITD_PORT": "8000"} | LOGITD["environment"]).items():
        assert name.removeprefix("LOGITD_").lower() in Settings.model_fields, name
        monkeypatch.setenv(name, value)
    return Settings()


def test_it_has_the_time_and_the_memory_that_its_settings_take(settings):
    assert int(LOGITD["stop_grace_period"].removesuffix("s")) > settings.drain_seconds + settings.shutdown_seconds
    memory_bytes = int(LOGITD["mem_limit"].removesuffix("g")) << 30
    most_bytes = settings.max_inflight_bytes + settings.staging_pool_bytes + settings.max_sessions_bytes
    assert memory_bytes > most_bytes + settings.attention_threads * settings.max_attention_memory_bytes + (512 << 20)
    assert settings.compute_threads == LOGITD["cpus"]


def test_prometheus_alone_reaches_the_admin_port(settings):
    ports = [port.rsplit(":", 1)[1] for port in LOGITD["ports"]]
    assert ports == [str(settings.port)]
    sharing = {name for name, one in SERVICES.items() if set(one["networks"]) & set(LOGITD["networks"])}
    assert sharing == {"logitd", "prometheus"}
    [target] = yaml.safe_load(COMPOSE["configs"]["targets"]["content"])
    assert target == {"targets": [f"logitd:{settings.admin_port}"]}


def test_nothing_is_published_beyond_loopback():
    for name, service in SERVICES.items():
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), name


def test_what_it_mounts_is_there():
    for service in SERVICES.values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in COMPOSE["volumes"] or (DEPLOY / source).exists(), volume


def test_prometheus_has_each_file_that_its_configuration_names():
    names = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    wanted = [*names["rule_files"]]
    discovered = [*names["scrape_configs"], *names["alerting"]["alertmanagers"]]
    wanted += [name for one in discovered for files in one["file_sd_configs"] for name in files["files"]]
    prometheus = SERVICES["prometheus"]
    inside = [volume.split(":")[1] for volume in prometheus["volumes"]]
    inside += [config["target"] for config in prometheus["configs"]]
    for name in wanted:
        assert f"/etc/prometheus/{name}" in inside


def test_grafanas_environment_has_what_its_provisioning_names():
    text = "".join(path.read_text() for path in (DEPLOY / "grafana" / "provisioning").rglob("*.yml"))
    for name in ("PROMETHEUS_URL", "GRAFANA_DASHBOARDS"):
        assert f"${name}\n" in text
        assert name in SERVICES["grafana"]["environment"]


def test_the_image_is_of_this_version():
    assert LOGITD["image"] == f"logitd:{__version__}"
