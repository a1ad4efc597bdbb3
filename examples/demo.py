"""Start the service on a free port, run the generation pipeline through it, stop it: `make demo`."""

import json
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

START_SECONDS = 60
STOP_SECONDS = 30


def wait_until_ready(service: subprocess.Popen[bytes], log: Path) -> str:
    """Return the service's URL once it answers /health/ready."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if service.poll() is not None:
            sys.exit(f"the service ended at start-up:\n{log.read_text()}")
        url = listening_url(log)
        if url and is_ready(url):
            return url
        time.sleep(0.1)
    sys.exit(f"the service was not ready within {START_SECONDS} s:\n{log.read_text()}")


def listening_url(log: Path) -> str | None:
    """Return the URL that the service's start-up line names, None while it is not there."""
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{") and line.endswith("}")]
    return next((line["url"] for line in lines if line["message"] == "listening"), None)


def is_ready(url: str) -> bool:
    """Ask the service whether it is ready."""
    try:
        with urllib.request.urlopen(f"{url}/health/ready", timeout=5) as answer:
            return answer.status == 200
    except (urllib.error.URLError, ConnectionError):
        return False


def main() -> int:
    """Run the demo; the exit status is the pipeline's, or the service's if it does not stop cleanly."""
    bin_folder = Path(sys.executable).parent
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "service.log"
        with log.open("wb") as stream:
            service = subprocess.Popen([bin_folder / "logitd", "serve", "--port", "0"], stderr=stream)
        try:
            url = wait_until_ready(service, log)
            print(f"logitd is ready at {url}\n", flush=True)
            pipeline = subprocess.run(
                [sys.executable, Path(__file__).with_name("generate.py"), "--url", url], check=False
            )
        finally:
            service.terminate()
            stopped = service.wait(STOP_SECONDS)
        print(f"logitd stopped with status {stopped}")
        return pipeline.returncode or stopped


if __name__ == "__main__":
    sys.exit(main())
