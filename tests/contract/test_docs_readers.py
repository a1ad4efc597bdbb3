"""Two who have never seen logitd do what its pages say: one comes to a first answer, one to a dashboard's data."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time

import httpx
import pytest
from docs_answers import fits, shown
from docs_blocks import EVERY, LONG, PROMETHEUS, ROOT, blocks
from docs_reader import Reader
from processes import answers, free_ports
from running import until
from shipped import expressions

from logitd import Client

README, OPERATIONS, DASHBOARD = ROOT / "README.md", ROOT / "docs" / "operations.md", ROOT / "docs" / "dashboard.md"
_PATIENCE_SECONDS = 300
_OWN = ("LOGITD_", "VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "OPENBLAS_", "PYTEST_")
_LIGHT = {
    "Ready", "Requests", "Tokens", "Requests by route", "Latency", "Mean time by stage", "Entropy before truncation",
    "Entropy after truncation", "Tokens kept", "Mass cut off", "Tokens by method",
}  # fmt: skip


def test_these_readers_read_every_block_that_waits_for_them():
    assert {block.page for block in EVERY if block.reason == LONG} == {README}
    assert {block.page for block in EVERY if block.reason == PROMETHEUS} == {OPERATIONS, DASHBOARD}


def marked(page, reason):
    [block] = [block for block in blocks(page) if block.reason == reason]
    return block


def after(block):
    """The blocks of a page behind one of them."""
    every = blocks(block.page)
    return every[every.index(block) + 1 :]


@contextlib.contextmanager
def typed(code, folder, **changed):
    """A command that goes on until the block ends, as in a terminal of its own with nothing set."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_OWN)}
    bin_folder = f"{os.sep}.venv{os.sep}"
    environment["PATH"] = os.pathsep.join(
        part for part in os.environ["PATH"].split(os.pathsep) if bin_folder not in part
    )
    process = subprocess.Popen(
        ["bash", "-c", code],
        cwd=folder,
        env=environment | changed,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.communicate(timeout=60)


@pytest.fixture
def checkout(tmp_path):
    """What git would hand out, and nothing that was built."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    folder = tmp_path / "checkout"
    for name in listed.stdout.split("\0")[:-1]:
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    yield folder
    shutil.rmtree(folder)  # with what was set up there it has a gigabyte


def listening(process):
    """What the service says when it listens; everything before comes from its being set up."""
    told = []
    for line in process.stderr:
        told.append(line)
        if '"listening"' in line:
            return json.loads(line)
    raise AssertionError("".join(told))


@pytest.mark.long
@pytest.mark.timeout(900)
def test_from_the_readme_to_a_first_answer(checkout, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "reader").mkdir()
    serve = marked(README, LONG)
    curl, answer = after(serve)[:2]
    assert (serve.line, answer.line) < (50, 50), "the first screen has it all"
    began = time.monotonic()
    with typed(serve.code, checkout, HOME=str(tmp_path / "home"), LOGITD_PORT="0") as process:
        told = listening(process)
        until(lambda: answers(f"{told['admin_url']}/health/ready"))
        reader = Reader(tmp_path / "reader", told["url"], told["admin_url"])
        reader.run(curl)
    took = time.monotonic() - began
    assert fits(shown(answer.code), json.loads(reader.printed)), reader.printed
    assert took < _PATIENCE_SECONDS, f"{took:.0f} s; the machine's load is {os.getloadavg()[0]:.1f}"


@pytest.mark.prometheus
@pytest.mark.timeout(300)
def test_from_operations_to_a_dashboard(tmp_path):
    reader = Reader(tmp_path, "http://127.0.0.1:8000", "http://127.0.0.1:8001")
    try:
        reader.run(next(block for block in blocks(OPERATIONS) if "logitd serve" in block.code))
        _watch(reader)
    finally:
        reader.close()


def _watch(reader):
    [port] = free_ports()
    address = f"127.0.0.1:{port}"
    reader.places["127.0.0.1:9090"] = address
    (reader.folder / "deploy").unlink()
    shutil.copytree(ROOT / "deploy" / "prometheus", reader.folder / "deploy" / "prometheus")
    targets = reader.folder / "deploy" / "prometheus" / "targets.yml"
    targets.write_text(reader.placed(targets.read_text()))
    ask = marked(OPERATIONS, PROMETHEUS)
    with typed(reader.placed(marked(DASHBOARD, PROMETHEUS).code), reader.folder) as process:
        until(lambda: process.poll() is not None or answers(f"http://{address}/-/ready"))
        assert process.poll() is None, process.stderr.read()
        until(lambda: _scraped(reader, ask), 60)
        _fill(reader.url, address)


def _scraped(reader, ask):
    reader.run(ask)
    return fits(shown(after(ask)[0].code), json.loads(reader.printed))


def _fill(url, address):
    """Ask for tokens until every panel that tells of them has data."""
    with Client(url) as client, httpx.Client(base_url=f"http://{address}") as prometheus:

        def full():
            client.sample([[0.5, 3, 1, 2.5]] * 3, temperature=0.7, top_p=0.9)
            time.sleep(1)
            return {title for title, _, expr in expressions("1m") if _has_data(prometheus, expr)} >= _LIGHT

        until(full, 150)


def _has_data(prometheus, expr):
    answer = prometheus.get("/api/v1/query", params={"query": expr}).json()
    assert answer["status"] == "success", answer
    return any(one["value"][1] != "NaN" for one in answer["data"]["result"])
