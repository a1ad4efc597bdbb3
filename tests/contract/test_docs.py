"""The documentation is generated where it can be, and executed where it shows code."""

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from wire import packed, sampled

from logitd.settings import Settings
from logitd_kernels import PARAMETERS, TRANSFORMS, philox4x32, uniform

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def blocks(text, language):
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_pages_are_fresh():
    for path, text in load(ROOT / "docs" / "tables.py").pages().items():
        assert path.read_text() == text, f"{path.name} is stale: run `make docs`"


def test_every_parameter_and_setting_is_documented():
    parameters = (ROOT / "docs" / "sampling-parameters.md").read_text()
    settings = (ROOT / "docs" / "settings.md").read_text()
    for transform in TRANSFORMS:
        assert f"## {transform.name}\n" in parameters
    for name in PARAMETERS:
        assert f"| `{name}` |" in parameters
    for name in Settings.model_fields:
        assert f"`LOGITD_{name.upper()}`" in settings


def test_the_curl_of_the_first_screen_works(service_url):
    [command] = [block for block in blocks(README, "sh") if "/v1/sample -H" in block]
    ran = subprocess.run(
        shlex.split(command.replace("\\\n", "").replace("http://127.0.0.1:8000", service_url)),
        capture_output=True,
        text=True,
        check=True,
    )
    promised = re.search(r'"token": (\d), "logprob": ([-\d.]+), "entropy": ([\d.]+)', README).groups()
    [row] = sampled(service_url, [[0.5, 3, 1, 2.5]], {"temperature": 0.7, "top_p": 0.9, "seed": 7})
    assert f'"token":{row["token"]}' in ran.stdout
    assert [float(number) for number in promised] == [
        row["token"],
        round(row["logprob"], 3),
        round(row["entropy"], 3),
    ]


@pytest.mark.parametrize("code", blocks(README, "python"))
def test_the_readmes_python_runs(service_url, code):
    exec(compile(code.replace("http://127.0.0.1:8000", service_url), "README.md", "exec"), {})


def test_the_readmes_shell_commands_run(service_url, tmp_path):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "row.npy", rng.normal(size=(1, 100)).astype(np.float32))
    qkv = {name: rng.normal(size=(1, 2, 100, 8)).astype(np.float32) for name in "qkv"}
    (tmp_path / "qkv.safetensors").write_bytes(packed(qkv))
    run = [block for block in blocks(README, "sh") if block.startswith("logitd ")]
    assert len(run) == 2
    for line in "".join(run).splitlines():
        command = shlex.split(line.replace("http://127.0.0.1:8000", service_url))
        if command[0] == "logitd":
            command = [sys.executable, "-m", "logitd.cli", *command[1:], "--url", service_url]
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        assert ("token" if "sample" in line else "cost") in ran.stdout
    assert (tmp_path / "error-against-cost.png").exists()


@pytest.fixture
def replay_page():
    names = {}
    text = (ROOT / "docs" / "replay.md").read_text()
    for code in blocks(text, "python"):
        exec(compile(code, "replay.md", "exec"), names)
    return text, names


def test_the_replay_page_replays(service_url, replay_page):
    text, names = replay_page
    assert f"u = {uniform(1)}" in text
    assert f"`{' '.join(f'{word:08x}' for word in philox4x32((0, 0, 0, 0), (0, 0)))}`" in text
    logits = np.random.default_rng(3).normal(size=(20, 500)).astype(np.float32)
    params = [{"seed": 2**40 + row, "stream": row, "step": 3, "temperature": 0.8, "top_p": 0.9} for row in range(20)]
    for place, row in enumerate(sampled(service_url, logits.tolist(), params)):
        wide = logits[place].astype(np.float64)
        assert names["replay"](wide, 0.8, row["kept"], row["seed"], row["stream"], row["step"]) == row["token"]


def test_local_links_lead_somewhere():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert target.startswith("http") or (page.parent / target).exists(), f"{page.name}: {target}"
