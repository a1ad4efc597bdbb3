"""`--plot` of an analysis: entropy and heat capacity of every row over temperature."""

from typing import TYPE_CHECKING

from logitd.cli.failure import CannotRun
from logitd.client import AnalyzeResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NAMED = 10  # rows beyond that go without a name


def draw(figure: "Figure", result: AnalyzeResult, first: int, path: str) -> None:
    """Draw S and C of every row over T, the first row numbered `first`; failed rows are left out.

    Raises:
        CannotRun: the file cannot be written.
    """
    entropy, heat = figure.subplots(2, sharex=True)
    for row, error in enumerate(result.errors):
        if error is None:
            name = f"row {first + row}" if row < _NAMED else None
            entropy.plot(result.temperatures, result.entropy[row], ".-", label=name)
            heat.plot(result.temperatures, result.heat_capacity[row], ".-")
    entropy.set(ylabel="entropy S, nats", title="Logits as energies, E = −z")
    heat.set(ylabel="heat capacity C, nats", xlabel="temperature T")
    for axes in (entropy, heat):
        axes.grid(alpha=0.2)
    if any(error is None for error in result.errors):
        entropy.legend(fontsize="small")
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise CannotRun(f"--plot {path}: {error.strerror}") from error
