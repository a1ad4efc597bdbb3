"""The peers, each a server of its own on a free loopback port."""

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from loadtest.http.cases import Rows
from loadtest.http.servers import free_port, running
from loadtest.peers import askers
from loadtest.peers.askers import Address, Asker
from loadtest.peers.environments import Environment, cache

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Peer:
    """A server of someone else that samples.

    Attributes:
        name: as in the table; its server is `NAME_server.py` beside this file.
        package: which brings it.
        asker: makes who asks it.
    """

    name: str
    package: str
    asker: Callable[[Address, Rows], Asker]

    @property
    def environment(self) -> Environment:
        """What it runs in."""
        return Environment(self.name)

    @property
    def release(self) -> str:
        """Its package and version, as pinned."""
        (found,) = re.findall(rf"^{re.escape(self.package)}==.*$", self.environment.pins.read_text(), re.MULTILINE)
        return str(found)

    @contextlib.contextmanager
    def serving(self) -> Iterator[Address]:
        """Run it; yields its address. What it writes goes to `NAME.log` in the cache.

        Raises:
            NotStartedError: it does not listen.
        """
        address = "127.0.0.1", free_port()
        command = [str(self.environment.python), "-m", f"loadtest.peers.{self.name}_server", str(address[1])]
        with running(command, address, variables(), cache() / f"{self.name}.log"):
            yield address


def variables() -> dict[str, str]:
    """Return the environment variables of a peer: its threads sleep when they have nothing to do, as logitd's do."""
    return {"PYTHONPATH": os.fspath(ROOT), "OMP_WAIT_POLICY": "passive"}


PEERS = (
    Peer("triton", "nvidia-pytriton", askers.triton),
    Peer("litserve", "litserve", askers.litserve),
    Peer("mlserver", "mlserver", askers.mlserver),
)
