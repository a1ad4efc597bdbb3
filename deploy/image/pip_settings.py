"""Write this machine's pip settings as one pip.conf and print the local paths they name, one a line.

The settings are those that say where packages come from; the file replaces the configuration files and the PIP_*
variables that pip would read here. The paths are what must be mounted for the file to mean the same elsewhere.
"""

import ast
import configparser
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlparse

SOURCES = ("index-url", "extra-index-url", "find-links", "no-index", "trusted-host")
TRANSPORT = ("cert", "client-cert", "proxy", "default-timeout", "timeout", "retries")
KEPT = {*SOURCES, *TRANSPORT, "constraint"}


def settings() -> dict[str, str]:
    """Return pip's settings by option name, a PIP_* variable before a file."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], check=True, capture_output=True, text=True
    ).stdout
    pairs = [line.split("=", 1) for line in listed.splitlines()]
    by_rank = sorted(pairs, key=lambda pair: pair[0].startswith(":env:"))
    found = {name.rpartition(".")[2]: ast.literal_eval(value) for name, value in by_rank}
    return {option: str(value) for option, value in found.items() if option in KEPT}


def local_paths(option: str, value: str) -> list[Path]:
    """Return the paths of this machine that a setting names."""
    paths = []
    for word in value.split():
        url = urlparse(word)
        path = Path(unquote(url.path))
        if url.scheme not in ("", "file") or not path.is_absolute() or not path.exists():
            continue
        # The pages of an index on disk may link to files beside it.
        paths.append(path.parent if option.endswith("index-url") else path)
    return paths


def main() -> None:
    """Write the file named on the command line and print the paths."""
    found = settings()
    config = configparser.RawConfigParser()
    config["global"] = {option: "\n".join(value.split()) for option, value in found.items()}
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        config.write(file)
    paths = {str(path) for option, value in found.items() for path in local_paths(option, value)}
    for path in sorted(paths):
        print(path)


if __name__ == "__main__":
    main()
