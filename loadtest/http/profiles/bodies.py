"""Bodies of real requests as files, for other tools: `python -m loadtest.http.profiles.bodies FOLDER`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from loadtest.http.profiles import real

from logitd.client.call import sample_call

_PARAMETERS = {"temperature": 0.8, "top_k": 50, "top_p": 0.9, "seed": 1}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files; returns the exit status."""
    parser = argparse.ArgumentParser(prog="bodies", description=__doc__)
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args(arguments).folder
    folder.mkdir(parents=True, exist_ok=True)
    rows = real.rows()
    calls = {
        "head": sample_call(rows[:1], keywords=_PARAMETERS, size=64),
        "row": sample_call(rows[:1], keywords=_PARAMETERS),
        "batch": sample_call(rows, keywords=_PARAMETERS),
    }
    for name, call in calls.items():
        (folder / f"{name}.safetensors").write_bytes(call.body)
    np.save(folder / "row.npy", rows[:1])
    for path in sorted(folder.iterdir()):
        print(f"{path.stat().st_size:>10,} bytes  {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
