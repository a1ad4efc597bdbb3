"""Turn `runc spec`'s config.json into the container of an image, and print how to talk to it.

    buildah inspect --type image IMAGE | python3 bundle.py config.json ROOTFS

Prints the loopback port the service is told to use, then the command of the image's HEALTHCHECK, one word a line.
The network is the machine's, hence the loopback address; limits and cgroups are left out, since setting them takes
rights that a container may lack. Otherwise it is as strict as a cluster can be: read-only root, no capabilities.
"""

import json
import socket
import sys
from pathlib import Path
from typing import Any


def free_port() -> int:
    """Return a port of 127.0.0.1 that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def fill(config: dict[str, Any], image: dict[str, Any], rootfs: str, port: int) -> None:
    """Fill a runtime configuration from an image's own."""
    uid, gid = map(int, image["User"].split(":"))
    environment = dict(entry.split("=", 1) for entry in image["Env"])
    environment |= {"LOGITD_HOST": "127.0.0.1", "LOGITD_PORT": str(port)}
    config["process"] = {
        "user": {"uid": uid, "gid": gid},
        "args": [*(image["Entrypoint"] or []), *(image["Cmd"] or [])],
        "env": [f"{name}={value}" for name, value in environment.items()],
        "cwd": image["WorkingDir"] or "/",
        "capabilities": {},
        "noNewPrivileges": True,
    }
    config["root"] = {"path": rootfs, "readonly": True}
    config["mounts"] = [mount for mount in config["mounts"] if mount["type"] != "cgroup"]
    config["mounts"].append({"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev"]})
    config["linux"].pop("resources", None)
    config["linux"]["namespaces"] = [kind for kind in config["linux"]["namespaces"] if kind["type"] != "network"]


def main() -> None:
    """Rewrite the file named first on the command line for the root named second."""
    path, rootfs = Path(sys.argv[1]), sys.argv[2]
    config = json.loads(path.read_text(encoding="utf-8"))
    image = json.load(sys.stdin)["Docker"]["config"]
    kind, *healthcheck = image["Healthcheck"]["Test"]
    if kind != "CMD":
        sys.exit(f"HEALTHCHECK is {kind}, not an exec-form CMD")
    port = free_port()
    fill(config, image, rootfs, port)
    path.write_text(json.dumps(config, indent=2), encoding="utf-8")
    print(port, *healthcheck, sep="\n")


if __name__ == "__main__":
    main()
