"""What 21 temperatures of `analyze` cost beside one softmax of the same real row, by turns on one thread."""

import sys

from loadtest.kernels import ours
from loadtest.kernels.rows import pool
from loadtest.kernels.timing import Budget, Contender, alternate, ratio, spread

from logitd_kernels import DenseRows, pick, softmax
from logitd_kernels.thermo import analyze

MOST = 25  # softmax passes
_TEMPERATURES = [round(0.2 + 0.09 * place, 2) for place in range(21)]


def main() -> int:
    """Print both times and their ratio; 1 if it is above the target."""
    ours.set_threads(1)
    rows, backend = DenseRows(pool("real", 1)), pick("auto")
    contenders = (
        Contender("softmax", lambda _: softmax(rows, [1.0], backend=backend)),
        Contender("analyze", lambda _: analyze(rows, _TEMPERATURES, backend=backend)),
    )
    seconds = alternate(contenders, Budget(rounds=40, least=2.0, most=20.0))
    found = ratio(seconds["analyze"], seconds["softmax"])
    for name, times in seconds.items():
        print(f"{name:8} {spread(times).median * 1e3:7.3f} ms a row ({backend.name}, V = {rows.vocab_size:,})")
    print(f"{len(_TEMPERATURES)} temperatures cost {found.median:.1f} softmaxes ({found.p20:.1f} to {found.p80:.1f})")
    return int(found.median >= MOST)


if __name__ == "__main__":
    sys.exit(main())
