"""No figure on red: the tests of what is measured run first."""

import subprocess
import sys

from loadtest.kernels.machine import ROOT

_NAMES = ("golden", "golden_truncation", "golden_extremes", "golden_edits", "backends", "draw")
TESTS = tuple(f"tests/kernels/test_{name}.py" for name in _NAMES)


def red(tests: tuple[str, ...] = TESTS) -> str | None:
    """Run the tests; return None when all pass, else what to print instead of figures."""
    missing = [test for test in tests if not (ROOT / test).exists()]
    if missing:
        return f"missing: {', '.join(missing)}"
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "--tb=no", "-p", "no:cacheprovider", *tests]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    said = run.stdout + run.stderr
    return None if run.returncode == 0 else said[max(said.find("= short test summary"), 0) :].strip()
