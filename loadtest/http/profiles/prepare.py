"""What a run needs before it begins: a server, the requests of its mix, and memory that both share."""

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace

from loadtest.http import servers
from loadtest.http.client import Address, NotAnsweredError, ask, connected, get
from loadtest.http.profiles import catalogue, real
from loadtest.http.profiles.kinds import Kind
from loadtest.http.profiles.profile import Profile
from loadtest.http.profiles.requests import Wire
from loadtest.http.profiles.target import Target
from loadtest.http.regions import shared

from logitd import Client

_SHARED = "shared memory"


@dataclass(frozen=True)
class Server:
    """A server that is to be asked.

    Attributes:
        url, target: where it listens.
        admin: its admin port; None where none is known.
        api_key: that it asks for.
    """

    url: str
    target: Target
    admin: Address | None
    api_key: str | None

    @property
    def told_at(self) -> Address | None:
        """Where it tells of itself: at the admin port, or where everybody asks if that needs no key and no TLS."""
        if self.admin is not None or self.target.tls or self.api_key is not None:
            return self.admin
        return self.target.address


@contextlib.contextmanager
def started(profile: Profile) -> Iterator[Server]:
    """Start a server with a profile's flags."""
    port, keys = servers.free_port(), [] if profile.api_key is None else ["--api-keys", f"loadtest:{profile.api_key}"]
    with servers.logitd("--admin-port", str(port), *keys, *profile.flags) as (host, main_port):
        url = f"http://{host}:{main_port}"
        yield Server(url, Target.of(url), ("127.0.0.1", port), profile.api_key)


def running(url: str, admin_url: str | None, api_key: str | None) -> Server:
    """Return a server that is there already.

    Raises:
        ValueError: a URL that is none.
    """
    target = Target.of(url)
    if admin_url is not None:
        return Server(url, target, Target.of(admin_url).address, api_key)
    return Server(url, target, _beside(target.address), api_key)


def about(server: Server) -> dict[str, str]:
    """Return what a server tells of itself.

    Raises:
        ClientError: it cannot be reached, or refuses.
    """
    with Client(server.url, api_key=server.api_key) as client:
        info = client.info()
    return {"server": server.url, "version": str(info["version"]), "backend": str(info["backend"]["name"])}


def _beside(address: Address) -> Address | None:
    """Return the admin port where it is by default, after the main one; None where nobody answers."""
    try:
        if not isinstance(address, str):
            beside = (address[0], address[1] + 1)
            with connected(beside) as connection:
                ask(connection, get("/health/live"))
            return beside
    except (OSError, NotAnsweredError):
        pass
    print("loadtest: no admin port found, so its probes are not judged; say --admin-url", file=sys.stderr)
    return None


@contextlib.contextmanager
def kinds_of(profile: Profile, server: Server) -> Iterator[tuple[Profile, list[Kind]]]:
    """Yield the kinds of requests of a profile, and the profile without those that this server cannot be asked.

    Raises:
        ValueError: a kind that there is none of.
    """
    rows, wire = real.rows(), Wire(server.api_key)
    with contextlib.ExitStack() as stack:
        region = None
        if _SHARED in profile.mix:
            keys = {} if server.api_key is None else {"x_api_key": server.api_key}
            try:
                memory = shared(server.target.address, catalogue.in_memory(rows), **keys)
                region = stack.enter_context(memory)
            except (OSError, NotAnsweredError) as error:
                print(f"loadtest: without shared memory, for the service says {error}", file=sys.stderr)
                profile = replace(profile, mix={name: n for name, n in profile.mix.items() if name != _SHARED})
        yield profile, catalogue.chosen(catalogue.kinds(wire, rows, region), profile.mix)
