"""Benchmarks of the kernels: `python -m loadtest.kernels.bench`, from the root of the repository.

OpenMP's threads sleep while they wait, for all contenders alike: where other work shares the machine, torch takes up to
thirty times as long with threads that spin. It must be said before torch is imported.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
