"""A real Prometheus with the shipped rules over seconds instead of minutes, on loopback, gone when the block ends."""

import contextlib
import shutil
import subprocess
import time
from urllib.parse import urlsplit

import httpx
import yaml
from processes import answers, ended, free_ports
from running import until
from shipped import PROMETHEUS, shortened

SHORT = {"1m": "8s", "5m": "8s", "1h": "20s"}
_FLAGS = ("--log.level=warn", "--enable-feature=exemplar-storage")


class Prometheus:
    """What it knows, by its HTTP API; and where it looks."""

    def __init__(self, http, folder):
        self._http, self._folder = http, folder

    def watch(self, *addresses):
        """Scrape these host:port, and no others."""
        new = self._folder / "targets.new"
        new.write_text(yaml.safe_dump([{"targets": list(addresses)}]))
        new.rename(self._folder / "targets.yml")

    def ask(self, path, **asked):
        """The data of an answer; an expression that does not parse is a failure."""
        answer = self._http.get(path, params=asked).json()
        assert answer["status"] == "success", answer
        return answer["data"]

    def now(self, expr):
        """The labels and values of an expression now."""
        return [(one["metric"], float(one["value"][1])) for one in self.ask("query", query=expr)["result"]]

    def over(self, expr, seconds):
        """Labels, and times and values, for each second up to now."""
        end = time.time()
        found = self.ask("query_range", query=expr, start=end - seconds, end=end, step=1)["result"]
        return [(one["metric"], [(at, float(value)) for at, value in one["values"]]) for one in found]

    def alerts(self):
        """The alerts that fire: name -> summary."""
        active = self.ask("alerts")["alerts"]
        return {
            alert["labels"]["alertname"]: alert["annotations"]["summary"]
            for alert in active
            if alert["state"] == "firing"
        }

    def up(self, count):
        """Whether so many targets answer."""
        return len([one for one in self.ask("targets")["activeTargets"] if one["health"] == "up"]) == count


@contextlib.contextmanager
def prometheus(folder):
    """Run it with its files in a folder; yields a `Prometheus` that watches nothing yet."""
    binary = shutil.which("prometheus")
    assert binary, "these tests need Prometheus (Debian package: prometheus)"
    config = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["scrape_configs"][0]["scrape_timeout"] = "1s"
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    for name in ("recording.yml", "alerts.yml"):
        (folder / name).write_text(shortened(name, SHORT))
    for name in ("targets.yml", "alertmanagers.yml"):
        (folder / name).write_text("[]")
    [port] = free_ports()
    address = f"127.0.0.1:{port}"
    where = (f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data")
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen([binary, *where, f"--web.listen-address={address}", *_FLAGS], stderr=log)
    try:
        until(lambda: process.poll() is not None or answers(f"http://{address}/-/ready"))
        assert process.poll() is None, (folder / "prometheus.log").read_text()
        with httpx.Client(base_url=f"http://{address}/api/v1", timeout=30) as http:
            yield Prometheus(http, folder)
    finally:
        ended(process)


def address(url):
    """Host and port of a URL, as a target is named."""
    return urlsplit(url).netloc
