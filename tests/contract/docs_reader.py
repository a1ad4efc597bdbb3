"""A reader who types what a page says, in order: a folder, a shell, a Python session, the servers that it starts."""

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
from docs_blocks import ROOT, Block
from running import started
from wire import packed

_SERVES = re.compile(r"^logitd serve", re.MULTILINE)
_STRICT = "set -euo pipefail\n"


class Reader:
    """Follows one page. Where the page has a port or a folder of the system, the reader has one of his own.

    Args:
        folder: where the commands run: the checkout by links, and files as pages name them.
        url, admin: of the service that the reader has running when the page begins.
    """

    def __init__(self, folder: Path, url: str, admin: str) -> None:
        self.folder = folder
        self.names = {"__name__": "__main__"}
        self.printed = ""
        self._running = contextlib.ExitStack()
        self._services = []
        self.places = {"/run/logitd": str(folder), "/run/secrets": str(folder), " --port 8000": " --port 0"}
        self._furnish()
        self._serves(url, admin)

    def run(self, block: Block, refused: bool = False) -> None:
        """Run a block; what it prints is in `printed`. `refused`: the page says that the service refuses it."""
        code = self.placed(block.code)
        if block.language == "python":
            self._python(code, block.place)
        elif _SERVES.search(code):
            self._serve(code)
        else:
            self._shell(code, block.place, refused)

    def close(self) -> None:
        """Close the clients that the page left open, and stop the services; each must end well."""
        with self._running:
            for value in self.names.values():
                if type(value).__name__.endswith("Client"):
                    value.close()
            for service in self._services:
                service.signal()
            assert [service.end() for service in self._services] == [0] * len(self._services)

    def _furnish(self) -> None:
        for entry in ROOT.iterdir():
            if not entry.name.startswith(".") and entry.name != "build":
                (self.folder / entry.name).symlink_to(entry)
        rng = np.random.default_rng(0)
        np.save(self.folder / "row.npy", rng.normal(size=(1, 100)).astype(np.float32))
        qkv = {name: rng.normal(size=(1, 2, 100, 8)).astype(np.float32) for name in "qkv"}
        (self.folder / "qkv.safetensors").write_bytes(packed(qkv))
        (self.folder / "logitd-keys").write_text("alice:0123456789abcdef\n")
        (self.folder / ".curlrc").write_text("fail-with-body\n")  # else a refusal looks like success

    def _serves(self, url: str, admin: str) -> None:
        self.url = url
        self.places |= {"127.0.0.1:8000": urlsplit(url).netloc, "127.0.0.1:8001": urlsplit(admin).netloc}

    def placed(self, code: str) -> str:
        for told, own in self.places.items():
            code = code.replace(told, own)
        return code

    def _environment(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        free_ports = {"LOGITD_PORT": "0", "LOGITD_ADMIN_PORT": "0"}
        unmeasured = {"LOGITD_ATTENTION_THRESHOLD": "1024"}  # measuring takes its time
        own = {"PATH": path, "HOME": str(self.folder), "LOGITD_URL": self.url}
        return {**os.environ, **own, **free_ports, **unmeasured}

    def _python(self, code: str, place: str) -> None:
        out = io.StringIO()
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(out):
            exec(compile(code, place, "exec"), self.names)
        self.printed = out.getvalue()

    def _shell(self, code: str, place: str, refused: bool) -> None:
        ran = subprocess.run(
            ["bash", "-c", _STRICT + code],
            cwd=self.folder,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=60,
        )
        self.printed = ran.stdout
        expected = 22 if refused else 0  # curl's status for an answer of 400 and above
        assert ran.returncode == expected, (
            f"{place}: status {ran.returncode}\n{ran.stdout[-2000:]}\n{ran.stderr[-2000:]}"
        )

    def _serve(self, code: str) -> None:
        command = ["bash", "-c", _STRICT + _SERVES.sub("exec logitd serve", code)]
        service = self._running.enter_context(started(command, cwd=self.folder, env=self._environment()))
        self._services.append(service)
        if service.url.startswith("http"):
            self._serves(service.url, service.admin)
