"""Turn umoci's config.json into one that runs where there is no engine, and print the loopback port it serves on.

The network is the machine's, hence the loopback address; terminal, limits and cgroups are left out, since setting
them takes rights that a sandbox may lack. Root and capabilities are as strict as deploy/ asks of a cluster.
"""

import json
import socket
import sys
from pathlib import Path


def free_port() -> int:
    """Return a port of 127.0.0.1 that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    """Rewrite the file named on the command line."""
    path = Path(sys.argv[1])
    config = json.loads(path.read_text(encoding="utf-8"))
    port = free_port()

    process = config["process"]
    process["terminal"] = False
    process.pop("rlimits", None)
    process["noNewPrivileges"] = True
    process["capabilities"] = {}
    here = {"LOGITD_HOST": "127.0.0.1", "LOGITD_PORT": str(port)}
    process["env"] = [entry for entry in process["env"] if entry.partition("=")[0] not in here]
    process["env"] += [f"{name}={value}" for name, value in here.items()]

    config["root"]["readonly"] = True
    config["mounts"] = [mount for mount in config["mounts"] if mount["type"] != "cgroup"]
    config["mounts"].append({"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev"]})
    linux = config["linux"]
    linux.pop("resources", None)
    linux["namespaces"] = [entry for entry in linux["namespaces"] if entry["type"] != "network"]

    path.write_text(json.dumps(config, indent=2), encoding="utf-8")
    print(port)


if __name__ == "__main__":
    main()
