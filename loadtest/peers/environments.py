"""A virtual environment for each peer, in the user's cache: what they require clashes, and it is gigabytes."""

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_HERE = Path(__file__).parent
_INSTALLED = ".installed"


def cache() -> Path:
    """Return the folder of all that peers need: $LOGITD_PEERS, or logitd-peers in the user's cache."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("LOGITD_PEERS") or Path(home) / "logitd-peers")


@dataclass(frozen=True)
class Environment:
    """What a peer runs in.

    Attributes:
        name: of the peer; beside this file its pins are `NAME.txt`, and `NAME_sitecustomize.py` is what Python runs
            there first, if it is there.
    """

    name: str

    @property
    def pins(self) -> Path:
        """What is installed, every version pinned."""
        return _HERE / f"{self.name}.txt"

    @property
    def folder(self) -> Path:
        """Where it lies: other pins or another Python are another environment."""
        made_from = self.pins.read_bytes() + sys.version.encode()
        return cache() / f"{self.name}-{hashlib.sha256(made_from).hexdigest()[:12]}"

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    @property
    def ready(self) -> bool:
        """Whether everything is installed."""
        return (self.folder / _INSTALLED).exists()

    def set_up(self) -> None:
        """Install what is pinned.

        Raises:
            subprocess.CalledProcessError: pip could not.
        """
        shutil.rmtree(self.folder, ignore_errors=True)  # half of one
        subprocess.run([sys.executable, "-m", "venv", self.folder], check=True)
        pip = [str(self.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--requirement", str(self.pins)], check=True)
        if (first := _HERE / f"{self.name}_sitecustomize.py").exists():
            (packages,) = self.folder.glob("lib/python*/site-packages")
            shutil.copyfile(first, packages / "sitecustomize.py")
        (self.folder / _INSTALLED).touch()
