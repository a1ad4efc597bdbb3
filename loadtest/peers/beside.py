"""logitd beside one peer: the same rows to both, by turns, each from as many connections as it is fastest with."""

import time
from collections.abc import Callable
from functools import partial

import numpy as np
from loadtest.http import turns
from loadtest.http.cases import ROWS, Rows, peaked
from loadtest.http.client import NotAnsweredError
from loadtest.http.report import Figure
from loadtest.kernels.answers import WrongAnswerError
from loadtest.peers import askers
from loadtest.peers.askers import Address, Asker
from loadtest.peers.servers import Peer

CONNECTIONS = (1, 4, 16)
_READY_SECONDS = 60.0
_CERTAIN = 1e4  # a logit that leaves no other token any probability


def beside(peer: Peer, ours: Address, rounds: int, seconds: float) -> list[Figure]:
    """Start a peer and measure it and logitd by turns.

    Args:
        peer: who is measured.
        ours: the address of logitd.
        rounds: how often each takes its turn.
        seconds: a turn.

    Returns:
        The figures of both at each number of rows.

    Raises:
        NotStartedError, NotAnsweredError, OSError: the peer does not serve.
        WrongAnswerError: a server draws another token than the only one there is.
    """
    with peer.serving() as theirs:
        taken = [
            _turn(peer, server, asker, rows, seconds)
            for rows in ROWS
            for server, asker in ((peer.name, partial(peer.asker, theirs)), ("logitd", partial(askers.logitd, ours)))
        ]
        turns.take(taken, rounds, seconds)
    return [figure for figure, _ in taken]


def _turn(peer: Peer, server: str, asker: Callable[[Rows], Asker], rows: int, seconds: float) -> turns.Turn:
    check(server, asker, rows)
    asked = asker(peaked(rows))
    connections = fastest(asked, seconds)
    return Figure(f"beside {peer.name}, B = {rows}", server, rows, connections), partial(asked.run, connections)


def check(server: str, asker: Callable[[Rows], Asker], rows: int) -> None:
    """Ask for rows of which only one token can come, another in each.

    Raises:
        WrongAnswerError: another one came.
    """
    logits = peaked(rows).copy()
    wanted = [1000 + 7 * row for row in range(rows)]
    logits[np.arange(rows), wanted] = _CERTAIN
    tokens = _first(asker(logits))
    if tokens != wanted:
        raise WrongAnswerError(f"{server} drew {tokens} where only {wanted} can be drawn")


def fastest(asker: Asker, seconds: float) -> int:
    """Return from how many connections the most requests are answered; each is tried twice."""
    rates = {count: max(asker.run(count, seconds / 2).rate for _ in range(2)) for count in CONNECTIONS}
    return max(rates, key=rates.__getitem__)


def _first(asker: Asker) -> list[int]:
    """Return the first answer of a server that may still be getting ready, though it listens."""
    ends = time.monotonic() + _READY_SECONDS
    while True:
        try:
            return asker.tokens()
        except (NotAnsweredError, OSError):
            if time.monotonic() > ends:
                raise
            time.sleep(0.2)
