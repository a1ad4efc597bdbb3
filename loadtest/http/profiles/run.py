"""One run of a profile against one server."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from loadtest.http.client import Address
from loadtest.http.profiles.connection import Pool
from loadtest.http.profiles.figures import Figures, figures, growth, whole
from loadtest.http.profiles.generate import Generator
from loadtest.http.profiles.kinds import Kind
from loadtest.http.profiles.knee import STEP_METRICS, Step, knee, of_steps
from loadtest.http.profiles.profile import Profile
from loadtest.http.profiles.record import Columns, Record, Span
from loadtest.http.profiles.schedule import Phase, cycle
from loadtest.http.profiles.slo import Slo
from loadtest.http.profiles.target import Target
from loadtest.http.profiles.watch import Watch, Watcher

_CAPACITY_CONNECTIONS, _CAPACITY_SECONDS, _WARM_SECONDS = 16, 4.0, 0.5
_READINGS = 600  # of the metrics at most


@dataclass(frozen=True)
class Client:
    """How the server is asked.

    Attributes:
        target: where it listens.
        told_at: where probes and metrics are; None for nowhere.
        connections: at most.
        timeout_seconds: after which an answer is no longer waited for.
    """

    target: Target
    told_at: Address | None
    connections: int = 2048
    timeout_seconds: float = 30.0


@dataclass
class Outcome:
    """What came of a run.

    Attributes:
        profile: what was run.
        record: every request.
        capacity: requests a second in a closed loop; None where it was not needed.
        seen: of the admin port.
        steps: of a ramp; of one that was repeated, how it went then.
        cut_short: whether somebody interrupted it.
    """

    profile: Profile
    record: Record
    capacity: float | None = None
    seen: Watch = field(default_factory=Watch)
    steps: list[Step] = field(default_factory=list)
    cut_short: bool = False

    @property
    def spans(self) -> list[Span]:
        """The phases of the open loop."""
        return [span for span in self.record.spans if span.rate]

    @property
    def knee(self) -> float | None:
        """The rate of a ramp's knee."""
        return knee(self.steps, of_steps(self.profile.slos))

    @cached_property
    def columns(self) -> Columns:
        """Every request of the open loop; to be asked for when the run is over."""
        return whole(self.record)

    def of(self, scope: str | None) -> Figures:
        """Return the figures of a kind, of a phase, or of all."""
        return figures(*self._within(scope), self.capacity)

    def _within(self, scope: str | None) -> tuple[Columns, list[Span]]:
        if scope in self.record.kinds:
            return self.columns.where(self.columns.kind == self.record.kinds.index(scope)), self.spans
        return self.columns, [span for span in self.spans if scope in (None, span.name)]

    def judged(self) -> list[tuple[Slo, float | None]]:
        """Return what was demanded and what came of it. The demands on each step of a ramp are not on the whole."""
        on_steps = of_steps(self.profile.slos) if self.profile.stepwise else []
        return [(slo, self._value(slo)) for slo in self.profile.slos if slo not in on_steps]

    def _value(self, slo: Slo) -> float | None:
        if slo.metric == "knee":
            return self.knee
        if slo.metric == "probes":
            return max(self.seen.probe_seconds, default=None)
        if slo.metric == "growth":
            return growth(*self._within(slo.scope))
        return self.of(slo.scope).value(slo.metric)


Tell = Callable[[Phase, Generator, Record], None]


async def run(profile: Profile, kinds: Sequence[Kind], client: Client, capacity: float | None, tell: Tell) -> Outcome:
    """Run a profile.

    Args:
        profile: what to do.
        kinds: of requests, those of its mix.
        client: how to ask.
        capacity: requests a second that load 1 means; None to measure it where it is needed.
        tell: is told twice a second how it goes.

    Returns:
        What came of it; of an interrupted run, what had come of it by then.
    """
    record = Record([kind.name for kind in kinds])
    order = [record.kinds.index(name) for name in cycle(profile.mix, 1)]
    pool = Pool(client.target, client.connections)
    generator = Generator(pool, kinds, order, record, client.timeout_seconds)
    outcome = Outcome(profile, record, capacity)
    await generator.closed_loop(1, _WARM_SECONDS)
    if profile.needs_capacity and capacity is None:
        outcome.capacity = await generator.closed_loop(_CAPACITY_CONNECTIONS, _CAPACITY_SECONDS)
    generator.restart()
    watcher = client.told_at and Watcher(client.told_at, generator.began, max(1.0, profile.seconds / _READINGS))
    if watcher:
        watcher.start()
    try:
        await _phases(outcome, generator, tell)
    except asyncio.CancelledError:  # hours of a soak are not to be lost
        record.cut(time.perf_counter() - generator.began)
        outcome.cut_short = True
    finally:
        if watcher:
            outcome.seen = await asyncio.to_thread(watcher.stop)
        await generator.give_up()
        pool.close()
        await asyncio.sleep(0)  # the connections close in the loop's next round
    return outcome


async def _phases(outcome: Outcome, generator: Generator, tell: Tell) -> None:
    phases = [plan.phase(outcome.capacity) for plan in outcome.profile.plans]
    if outcome.profile.stepwise:
        await _climb(outcome, phases, generator, tell)
        return
    for phase in phases:
        await _send(outcome, phase, generator, tell)
    await generator.drained()


async def _climb(outcome: Outcome, phases: Sequence[Phase], generator: Generator, tell: Tell) -> None:
    """Send steps until two break: one more than needed, so that the plot shows where it goes."""
    demands, broken = of_steps(outcome.profile.slos), 0
    for phase in phases:
        step = await _step(outcome, phase, generator, tell)
        if step.broken(demands) and not broken:  # one bad moment of a shared machine is no knee
            step = await _step(outcome, replace(phase, name=f"{phase.name} again"), generator, tell)
        outcome.steps.append(step)
        broken += bool(step.broken(demands))
        if broken > 1:
            return


async def _step(outcome: Outcome, phase: Phase, generator: Generator, tell: Tell) -> Step:
    await _send(outcome, phase, generator, tell)
    span = outcome.record.spans[-1]
    found = figures(outcome.record.columns(), [span], None)
    return Step(span.rate, {metric: found.value(metric) for metric in STEP_METRICS})


async def _send(outcome: Outcome, phase: Phase, generator: Generator, tell: Tell) -> None:
    telling = asyncio.create_task(_tell(phase, generator, outcome.record, tell))
    try:
        await generator.phase(phase)
        if outcome.profile.stepwise:
            await generator.drained()  # or one step's queue would be the next one's latency
    finally:
        telling.cancel()


async def _tell(phase: Phase, generator: Generator, record: Record, tell: Tell) -> None:
    while True:
        await asyncio.sleep(0.5)
        tell(phase, generator, record)
