"""Replicas of the service behind Envoy, as deploy/envoy/envoy.yaml has it; only addresses are put in."""

import contextlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import yaml
from processes import ended, free_ports
from running import running, until

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "deploy" / "envoy" / "envoy.yaml"
ENVOY = Path(sys.executable).with_name("envoy")
CLUSTERS = ("replicas", "sessions")


class Balanced:
    """An Envoy that runs, and the replicas behind it.

    Attributes:
        url: where Envoy listens.
        admin: Envoy's own admin port.
        replicas: as `running` yields them.
    """

    def __init__(self, url, admin, replicas):
        self.url, self.admin, self.replicas = url, admin, replicas

    def healthy(self):
        """Return, for each cluster, how many replicas Envoy asks."""
        stats = self.stats("membership_healthy")
        return [stats[f"cluster.{cluster}.membership_healthy"] for cluster in CLUSTERS]

    def stats(self, pattern):
        """Return Envoy's own counts whose names match, by name."""
        lines = httpx.get(f"{self.admin}/stats", params={"filter": pattern}).text.splitlines()
        return {name: int(value) for name, value in (line.split(": ") for line in lines)}


@contextlib.contextmanager
def balanced(replicas, folder, *flags):
    """Run so many replicas, and Envoy before them; Envoy knows that all are ready when the block begins."""
    with ExitStack() as stack:
        services = started(replicas, stack, "--compute-threads", 1, *flags)
        ports = free_ports(3)
        path = folder / "envoy.yaml"
        path.write_text(yaml.safe_dump(placed(yaml.safe_load(CONFIG.read_text()), services, *ports)))
        command = [ENVOY, "-c", path, "--concurrency", "1", "--use-dynamic-base-id", "--log-level", "warn"]
        with (folder / "envoy.log").open("w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        stack.callback(ended, process)
        front = Balanced(*(f"http://127.0.0.1:{port}" for port in ports[:2]), services)

        def ready():
            assert process.poll() is None, (folder / "envoy.log").read_text()
            with contextlib.suppress(httpx.ConnectError, KeyError):
                return front.healthy() == [replicas] * 2

        until(ready)
        yield front


def started(replicas, stack, *flags):
    """Start replicas side by side."""
    with ThreadPoolExecutor(replicas) as pool:
        starting = [pool.submit(stack.enter_context, running(*flags)) for _ in range(replicas)]
    return [one.result() for one in starting]


def placed(config, services, port, admin_port, probe_port):
    """Return the configuration with addresses of this machine in the place of those of a cluster."""
    resources = config["static_resources"]
    config["admin"]["address"] = loopback(admin_port)
    for listener, its_port in zip(resources["listeners"], (port, probe_port), strict=True):
        listener["address"] = loopback(its_port)
    for cluster in resources["clusters"]:
        [endpoints] = cluster["load_assignment"]["endpoints"]
        if cluster["name"] in CLUSTERS:
            assert cluster["type"] == "STRICT_DNS"
            cluster["type"] = "STATIC"
            endpoints["lb_endpoints"] = [{"endpoint": endpoint(service)} for service in services]
        else:
            endpoints["lb_endpoints"][0]["endpoint"]["address"] = loopback(admin_port)
    return config


def endpoint(service):
    main, admin = (urlsplit(url).port for url in (service.url, service.admin))
    return {"address": loopback(main), "health_check_config": {"port_value": admin}}


def loopback(port):
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}
