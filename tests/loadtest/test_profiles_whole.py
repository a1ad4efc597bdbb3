"""Whole profiles against a server of their own, and their reports in a browser: minutes, so `make test-long`."""

import json
import re
import shutil
import subprocess

import httpx
import matplotlib.image
import numpy as np
import pytest
from loadtest.http.profiles import __main__ as command
from loadtest.http.profiles.exposition import samples
from loadtest.http.profiles.profile import load
from running import running

pytestmark = pytest.mark.long

# What no client can bring about, or what is rightly nothing once everybody has left.
_AT_REST = re.compile(
    r"logitd_(queue_\w+|inflight_\w+|admitted_requests|attention_inflight_requests|sessions|session_state_bytes"
    r"|self_tests_total)"
)


def test_after_the_mixed_profile_every_series_has_data(tmp_path):
    mixed = load("mixed")
    easy = [flag for slo in ("probes=5s", "head:p99=5s", "goodput=50%") for flag in ("--slo", slo)]
    with running("--api-keys", f"loadtest:{mixed.api_key}", *mixed.flags) as service:
        flags = ["--url", service.url, "--admin-url", service.admin, "--api-key", mixed.api_key, "--out", str(tmp_path)]
        assert command.main(["mixed", "--seconds", "12", *flags, *easy]) == 0
        text = httpx.get(f"{service.admin}/metrics").text
    largest = {}
    for (name, _), value in samples(text, ("logitd_",)).items():
        family = re.sub(r"_(bucket|sum|count)$", "", name)
        largest[family] = max(largest.get(family, 0.0), value)
    assert len(largest) > 30
    assert [name for name, value in largest.items() if not value and not _AT_REST.fullmatch(name)] == []


@pytest.mark.parametrize("name", ["ramp", "spike"])
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium: apt-get install chromium")
def test_a_report_opens_in_a_browser_without_a_complaint(name, tmp_path):
    easy = (
        ["--slo", "probes=5s"] if name == "spike" else ["--slo", "knee=1/s", "--slo", "p99=5s", "--slo", "goodput=50%"]
    )
    command.main([name, "--seconds", "12", "--out", str(tmp_path), *easy])
    report = json.loads((tmp_path / f"{name}.json").read_text())
    assert report["knee_per_second"] if name == "ramp" else report["phases"]["spike"]["shed"]
    picture = tmp_path / "page.png"
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1300,2400", "--enable-logging=stderr"]
    page = (tmp_path / f"{name}.html").as_uri()
    ran = subprocess.run(
        ["chromium", *flags, f"--screenshot={picture}", page], capture_output=True, text=True, timeout=60, check=True
    )
    assert "CONSOLE" not in ran.stderr
    pixels = (255 * matplotlib.image.imread(picture)[..., :3]).round().astype(int)
    assert pixels.shape[1] == 1300
    blue = np.abs(pixels - [0x24, 0x63, 0xEB]).max(axis=2) <= 8
    assert blue.sum() > 200  # lines are drawn, in the page's own colours
    assert len({row // 300 for row in np.flatnonzero(blue.any(axis=1))}) >= 3  # all over the page
