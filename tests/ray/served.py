"""A Ray node on loopback that serves logitd as deploy/ray has it; only ports, sizes and the token are put in."""

import contextlib
import os
import secrets
import subprocess
import sys
from pathlib import Path

import httpx
import yaml
from processes import answers, ended, free_ports
from running import until

DEPLOY = Path(__file__).resolve().parents[2] / "deploy" / "ray"
BIN = Path(sys.executable).parent
SMALL = {
    "ray_actor_options": {"num_cpus": 0.5},
    "autoscaling_config": None,
    "max_ongoing_requests": 4,
    "max_queued_requests": 4,
    "graceful_shutdown_wait_loop_s": 0.1,
}
REPLICA = ("ray::ServeReplica", "ray::SERVE_REPLICA")  # at work, and at first
START_SECONDS = 240  # Ray starts a process for everything


class Served:
    """A Ray node that runs.

    Attributes:
        node: its process, the ancestor of all others.
        url: where Ray's HTTP proxy answers.
    """

    def __init__(self, folder, node, address, environment, ports):
        self.node = node
        self._port, self._admin_port = ports
        self.url = f"http://127.0.0.1:{self._port}"
        self._folder, self._address, self._environment = folder, address, environment

    def deploy(self, replicas):
        """Have so many replicas; returns once they, and no others, are ready."""
        config = yaml.safe_load((DEPLOY / "serve.yaml").read_text())
        config["http_options"]["port"] = self._port
        [application] = config["applications"]
        application["args"]["settings"]["admin_port"] = self._admin_port
        application["deployments"][0] |= {**SMALL, "num_replicas": replicas}
        path = self._folder / "serve.yaml"
        path.write_text(yaml.safe_dump(config))
        command = [BIN / "serve", "run", "--non-blocking", "--address", self._address, path]
        subprocess.run(command, env=self._environment, check=True, capture_output=True, timeout=START_SECONDS)
        until(lambda: len(self.ready()) == replicas, seconds=START_SECONDS)

    def ready(self):
        """Return the admin URLs of the replicas that say they are ready."""
        return [url for url in self._admin_urls() if answers(f"{url}/health/ready")]

    def sampled(self):
        """Return how many requests each replica has sampled, by admin URL."""
        return {url: series(url, 'logitd_requests_total{code="200",endpoint="/v1/sample"}') for url in self.ready()}

    def replica_processes(self):
        """Return the ids of the processes that are replicas."""
        parents, replicas = {}, []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                if (folder / "cmdline").read_text().startswith(REPLICA):
                    replicas.append(int(folder.name))
        return [one for one in replicas if self.node.pid in ancestors(one, parents)]

    def _admin_urls(self):
        return [f"http://127.0.0.1:{port}" for port in range(self._admin_port, self._admin_port + 4)]


def ancestors(process, parents):
    while process in parents:
        process = parents[process]
        yield process


def series(url, name):
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


@contextlib.contextmanager
def served(folder, replicas):
    """Run a node with so many replicas until the block ends; they are ready when it begins."""
    port, client_port, *ports = free_ports(4)
    environment = {
        **os.environ,
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_AUTH_MODE": "token",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # where that is off, Ray stays on loopback
        "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
    }
    flags = {
        "node-ip-address": "127.0.0.1",
        "port": port,
        "ray-client-server-port": client_port,
        "num-cpus": 2,
        "object-store-memory": 100 << 20,
        "temp-dir": folder / "r",
        "include-log-monitor": "false",
    }
    with (folder / "ray.log").open("w") as log:
        command = [DEPLOY / "start.sh", "--head", *(f"--{name}={value}" for name, value in flags.items())]
        node = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        one = Served(folder, node, f"127.0.0.1:{port}", environment, ports)

        def started():
            assert node.poll() is None, (folder / "ray.log").read_text()
            return "Ray runtime started" in (folder / "ray.log").read_text()

        until(started, seconds=START_SECONDS)
        one.deploy(replicas)
        yield one
    finally:
        ended(node)
