"""One measurement: who does this work how fast, in one run and by turns."""

from dataclasses import dataclass

from loadtest.kernels import ours, peers
from loadtest.kernels.answers import right
from loadtest.kernels.cases import Work
from loadtest.kernels.floor import floor
from loadtest.kernels.only import Only
from loadtest.kernels.timing import CPU, WALL, Budget, Contender, Spread, alternate, ratio, spread


@dataclass(frozen=True)
class Figure:
    """A line of the table.

    Attributes:
        rows, case, contender: what was measured.
        vocab, batch, threads: V, rows a call, threads allowed.
        seconds: for one row; of CPU time on one thread, by the wall clock on more.
        gb_per_s: the bytes that must move, over the median.
        over_floor: how many times the floor's time, round by round; the floor runs on one thread.
        rounds: how many turns each contender had.
    """

    rows: str
    case: str
    contender: str
    vocab: int
    batch: int
    threads: int
    seconds: Spread
    gb_per_s: float
    over_floor: Spread
    rounds: int


def measure(work: Work, budget: Budget, only: Only) -> tuple[list[Figure], list[str]]:
    """Time the floor, our backends and the peers on some work, fastest first.

    Returns:
        The figures, none where nobody wanted does the work, and a line for each peer left out for a wrong answer.
    Raises:
        WrongAnswerError: one of ours answers wrongly.
    """

    def wanted(contender: Contender) -> bool:
        return only.contender(contender.name, work.case.name, work.kind)

    ours.set_threads(work.threads)
    contenders = [one for one in ours.contenders(work) + peers.contenders(work) if wanted(one)]
    if not contenders:
        return [], []
    contenders, wrong = right(work, contenders)
    return figures(work, [floor(work), *contenders], budget), wrong


def figures(work: Work, contenders: list[Contender], budget: Budget) -> list[Figure]:
    """Time contenders of which one is called `floor`."""
    times = alternate(contenders, budget, CPU if work.threads == 1 else WALL)
    made = []
    for name, seconds in times.items():
        made.append(
            Figure(
                rows=work.kind,
                case=work.case.name,
                contender=name,
                vocab=work.blocks[0].shape[1],
                batch=work.batch,
                threads=work.threads,
                seconds=spread(seconds),
                gb_per_s=work.row_bytes / spread(seconds).median / 1e9,
                over_floor=ratio(seconds, times["floor"]),
                rounds=len(seconds),
            )
        )
    return sorted(made, key=lambda figure: figure.seconds.median)
