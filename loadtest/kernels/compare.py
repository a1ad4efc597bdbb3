"""`--base REV`: the kernels of a commit against the working tree's, the same rows, turn by turn in one run."""

import contextlib
import json
import os
import site
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loadtest.kernels import rows, table
from loadtest.kernels.cases import NAMED
from loadtest.kernels.machine import ROOT, commit
from loadtest.kernels.only import Only
from loadtest.kernels.timing import WALL, Budget, Times, ratio, spread

_POOL = 8
_HEADER = f"  {'case':<18} {'contender':<18} {'base':>9} {'now':>9} {'now / base':>22}"


class _Side:
    """A worker process and the kernels it runs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.kernels: str = self._read()["kernels"]

    def ask(self, **question: Any) -> dict[str, Any]:  # noqa: ANN401  (anything JSON has)
        """Send a question and return the answer."""
        assert self._process.stdin
        print(json.dumps(question), file=self._process.stdin, flush=True)
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("a worker ended; its error is above")
        answer: dict[str, Any] = json.loads(line)
        return answer


def compare(revision: str, only: Only, budget: Budget) -> int:
    """Print the ratio now : base for every case and backend that both have; returns the exit status."""
    with tempfile.TemporaryDirectory(prefix="logitd-base-") as folder:
        print(f"installing {revision} …", flush=True)
        installed = _install(revision, Path(folder))
        with _running({**os.environ, "PYTHONPATH": _path(installed)}, "-S") as base, _running(dict(os.environ)) as now:
            if not Path(base.kernels).is_relative_to(installed.resolve()):
                raise SystemExit(f"the base imports {base.kernels}, not what was installed for it")
            print(f"base: {revision}; now: {commit()}, {now.kernels}")
            for kind in rows.KINDS:
                cases = [case.name for case in NAMED if only.case(case.name, kind)]
                if cases:
                    _kind(kind, cases, base, now, only, budget)
    return 0


def _kind(kind: str, cases: list[str], base: _Side, now: _Side, only: Only, budget: Budget) -> None:
    print(f"\n{kind} rows, one thread (CPU time), one row a call\n{_HEADER}")
    sides = (base, now)
    for case in cases:
        answers = [side.ask(rows=kind, case=case, count=_POOL) for side in sides]
        for error in (answer["error"] for answer in answers if "error" in answer):
            print(f"  {case:<18} {error}")
        both = [name for name in answers[1].get("contenders", []) if name in answers[0].get("contenders", [])]
        for name in (name for name in both if only.contender(name, case, kind)):
            _print(case, name, *_alternate(sides, name, budget))


def _alternate(sides: tuple[_Side, _Side], name: str, budget: Budget) -> tuple[Times, Times]:
    """Return the seconds a row of base and now by round, each the first in every other round."""
    seconds: tuple[dict[int, float], dict[int, float]] = ({}, {})
    start = WALL()
    while not budget.spent(done := len(seconds[0]), WALL() - start):
        for place in (0, 1) if done % 2 else (1, 0):
            seconds[place][done] = sides[place].ask(turn=name)["seconds"]
    return seconds


def _print(case: str, name: str, base: Times, now: Times) -> None:
    found = ratio(now, base)
    shown = f"{found.median:.3f} ({found.p20:.3f}–{found.p80:.3f})"
    medians = " ".join(f"{table.duration(spread(seconds).median):>9}" for seconds in (base, now))
    print(f"  {case:<18} {name:<18} {medians} {shown:>22}", flush=True)


def _install(revision: str, folder: Path) -> Path:
    """Build and install a commit's packages, without dependencies, into a folder of their own."""
    tree, installed = folder / "tree", folder / "installed"
    tree.mkdir()
    archive = subprocess.run(["git", "archive", "--format=tar", revision], cwd=ROOT, check=True, capture_output=True)
    subprocess.run(["tar", "-x", "-C", tree], input=archive.stdout, check=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--target", installed, tree], check=True)
    return installed


def _path(installed: Path) -> str:
    """Return a PYTHONPATH on which the installed packages come first.

    For an interpreter without `site` (-S), which would run the import hooks of an editable install before any path.
    """
    return os.pathsep.join([str(installed), *site.getsitepackages()])


@contextlib.contextmanager
def _running(environment: dict[str, str], *flags: str) -> Iterator[_Side]:
    command = [sys.executable, *flags, "-m", "loadtest.kernels.worker"]
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield _Side(process)
    finally:
        assert process.stdin
        process.stdin.close()
        process.wait(30)
