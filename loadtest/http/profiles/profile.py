"""Profiles: which requests, at which rates, for how long, and what must come of it. One TOML file each."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from loadtest.http.profiles.schedule import Phase
from loadtest.http.profiles.slo import Slo, parsed

FOLDER = Path(__file__).parent
_KEYS = {"text", "mix", "phases", "ramp", "slo", "server"}


@dataclass(frozen=True)
class Plan:
    """A phase whose rate may still have to be measured.

    Attributes:
        name, seconds, settle_seconds: of the phase.
        rate: requests a second; None where `load` says it.
        load: the rate over the capacity, which is measured first.
    """

    name: str
    seconds: float
    settle_seconds: float = 0.0
    rate: float | None = None
    load: float | None = None

    def phase(self, capacity: float | None) -> Phase:
        """Return the phase; capacity in requests a second."""
        rate = self.rate
        if rate is None:
            assert self.load is not None
            assert capacity is not None
            rate = self.load * capacity
        return Phase(self.name, self.seconds, rate, self.settle_seconds)


@dataclass(frozen=True)
class Profile:
    """What is to be done.

    Attributes:
        name, text: for the report.
        mix: kinds of requests, and how often each comes.
        plans: the phases.
        stepwise: the phases are steps of a ramp, which ends where one no longer holds.
        slos: what must come of it.
        flags: of a server that is started for it.
        api_key: that such a server asks for.
    """

    name: str
    text: str
    mix: Mapping[str, int]
    plans: tuple[Plan, ...]
    stepwise: bool
    slos: tuple[Slo, ...]
    flags: tuple[str, ...] = ()
    api_key: str | None = None

    @property
    def needs_capacity(self) -> bool:
        """Whether some rate is relative to what the server can do."""
        return any(plan.rate is None for plan in self.plans)

    @property
    def seconds(self) -> float:
        """How long all phases last."""
        return sum(plan.seconds for plan in self.plans)

    def lasting(self, seconds: float) -> "Profile":
        """Return it with all phases shortened or prolonged alike."""
        ratio = seconds / self.seconds
        plans = [
            replace(one, seconds=one.seconds * ratio, settle_seconds=one.settle_seconds * ratio) for one in self.plans
        ]
        return replace(self, plans=tuple(plans))

    def at_rate(self, rate: float) -> "Profile":
        """Return it with another rate.

        Raises:
            ValueError: it has several.
        """
        if len({(plan.rate, plan.load) for plan in self.plans}) > 1:
            raise ValueError(f"profile {self.name} has several rates: scale them with --capacity")
        return replace(self, plans=tuple(replace(plan, rate=rate, load=None) for plan in self.plans))

    def without(self, metric: str) -> "Profile":
        """Return it without its demands on a metric."""
        return replace(self, slos=tuple(slo for slo in self.slos if slo.metric != metric))

    def demanding(self, slos: list[Slo]) -> "Profile":
        """Return it with further demands; one on what is demanded already replaces that.

        Raises:
            ValueError: one is about a kind or a phase that there is none of.
        """
        named = {slo.name: slo for slo in (*self.slos, *slos)}
        scopes = {*self.mix, *(plan.name for plan in self.plans), None}
        if unknown := [slo.name for slo in named.values() if slo.scope not in scopes]:
            raise ValueError(f"profile {self.name} has no such kind or phase: {', '.join(unknown)}")
        return replace(self, slos=tuple(named.values()))


def names() -> list[str]:
    """Return the profiles that come along."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load(name: str) -> Profile:
    """Return a profile by its name, or from a file.

    Raises:
        ValueError: no such profile, or one that makes no sense.
    """
    path = FOLDER / f"{name}.toml" if name in names() else Path(name)
    if path.suffix != ".toml" or not path.is_file():
        raise ValueError(f"no such profile: {name}; there are {', '.join(names())}, or name a TOML file")
    try:
        return read(path.stem, tomllib.loads(path.read_text()))
    except (KeyError, TypeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"{path}: {error!r}") from error


def read(name: str, content: Mapping[str, Any]) -> Profile:
    """Read a profile.

    Raises:
        KeyError, TypeError, ValueError: it makes no sense.
    """
    if unknown := set(content) - _KEYS:
        raise ValueError(f"profile {name}: unknown {', '.join(sorted(unknown))}; known are {', '.join(sorted(_KEYS))}")
    plans = [Plan(**each) for each in content.get("phases", ())] or _steps(**content["ramp"])
    if any((plan.rate is None) == (plan.load is None) for plan in plans):
        raise ValueError(f"profile {name}: a phase has either a rate or a load")
    server = content.get("server", {})
    slos = tuple(parsed(f"{scope}={limit}") for scope, limit in content.get("slo", {}).items())
    flags = tuple(map(str, server.get("flags", ())))
    mix, text = dict(content["mix"]), content["text"]
    return Profile(name, text, mix, tuple(plans), "ramp" in content, slos, flags, server.get("api_key"))


def _steps(*, loads: list[float], seconds: float, settle_seconds: float) -> list[Plan]:
    return [Plan(f"{load:.0%}", seconds, settle_seconds, load=load) for load in loads]
