"""Locust users that decode: each draws tokens from real logits, through the binary client.

    pip install 'logitd[demo,locust]'
    locust -f loadtest/locustfile.py --host http://127.0.0.1:8000 --users 20 --spawn-rate 10

Locust's users wait for their answers: a slow server is asked less, and latency counts from when a request was sent.
What a service does under an arrival rate that does not care is measured by `make loadtest`.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from loadtest.http.profiles import real
from locust import User, constant_throughput, events, task
from locust.argument_parser import LocustArgumentParser

from logitd import Client, LogitdError

_PARAMETERS = {"temperature": 0.8, "top_k": 50, "top_p": 0.9}
_HEAD = 64
_seeds = count()


@events.init_command_line_parser.add_listener
def _flags(parser: LocustArgumentParser) -> None:
    parser.add_argument("--api-key", env_var="LOGITD_API_KEY", default="", help="for a service that asks for one")
    parser.add_argument("--each", type=float, default=10.0, help="requests a second that each user tries for")


@events.test_start.add_listener
def _prepare(**_: object) -> None:
    real.rows()  # seconds, which would be the first users' latency
    logging.getLogger("httpx").setLevel(logging.WARNING)  # a line a request


class Decoder(User):
    """One sequence: a seed of its own, and a step for every token."""

    def wait_time(self) -> float:
        """Return how long to wait, so that the user asks `--each` times a second where the service keeps up."""
        wait: float = constant_throughput(self.environment.parsed_options.each)(self)
        return wait

    def on_start(self) -> None:
        """Connect."""
        key = self.environment.parsed_options.api_key or None
        self._client = Client(self.host, api_key=key, retries=0)  # a refusal is to be seen, not tried again
        self._seed, self._steps = next(_seeds), count()
        self._rows = real.rows()

    def on_stop(self) -> None:
        """Disconnect."""
        self._client.close()

    @task(6)
    def head(self) -> None:
        """Send a row's head: 64 logits and what the others weigh."""
        step = next(self._steps)
        with self._told("head", tokens=1):
            row = self._rows[step % len(self._rows)]
            self._client.sample(row, compact=_HEAD, seed=self._seed, step=step, **_PARAMETERS)

    @task(2)
    def row(self) -> None:
        """Send a whole row of 504 kB."""
        step = next(self._steps)
        with self._told("row", tokens=1):
            self._client.sample(self._rows[step % len(self._rows)], seed=self._seed, step=step, **_PARAMETERS)

    @task(1)
    def batch(self) -> None:
        """Send eight rows at once."""
        step = next(self._steps)
        with self._told("batch", tokens=len(self._rows)):
            self._client.sample(self._rows, seed=self._seed, step=step, **_PARAMETERS)

    @contextmanager
    def _told(self, name: str, tokens: int) -> Iterator[None]:
        """Tell Locust how long a request took, how many tokens it drew, and what went wrong."""
        began, failure = time.perf_counter(), None
        try:
            yield
        except LogitdError as error:
            failure = error
        self.environment.events.request.fire(
            request_type="sample",
            name=name,
            response_time=(time.perf_counter() - began) * 1e3,
            response_length=0 if failure else tokens,
            exception=failure,
            context={},
        )
