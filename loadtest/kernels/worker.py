"""One side of `--base`: measures the kernels that its own interpreter finds, one turn at a time, as told on stdin.

A line in, a line out, both JSON:

    {"rows": kind, "case": name, "count": N}  ->  {"contenders": [name, …]} or {"error": …}
    {"turn": name}                            ->  {"seconds": one row's}
"""

import json
import os
import sys
from pathlib import Path
from typing import Any, TextIO

from loadtest.kernels import ours
from loadtest.kernels.cases import NAMED, Work
from loadtest.kernels.rows import pool
from loadtest.kernels.timing import CPU, Turn

import logitd_kernels


def main() -> None:
    """Answer until stdin ends; whatever else prints goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _say(answers, {"kernels": str(Path(logitd_kernels.__file__).resolve())})
    turns: dict[str, Turn] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        if "turn" in asked:
            _say(answers, {"seconds": turns[asked["turn"]].take()})
            continue
        try:
            turns = _turns(asked["rows"], asked["case"], asked["count"])
            _say(answers, {"contenders": list(turns)})
        except Exception as error:  # an older commit may lack what this case needs
            _say(answers, {"error": f"{type(error).__name__}: {error}"})


def _turns(kind: str, case: str, count: int) -> dict[str, Turn]:
    ours.set_threads(1)
    work = Work.of(kind, next(one for one in NAMED if one.name == case), pool(kind, count))
    return {one.name: Turn(one, CPU) for one in ours.contenders(work)}


def _say(answers: TextIO, answer: dict[str, Any]) -> None:
    print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
