"""`logitd analyze` against a real service, and `logitd verify-theory`, which needs none."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest

from logitd import Client
from logitd.cli import main
from logitd.cli.analyze_text import curve
from logitd_kernels.thermo import theory

LOGITS = (np.random.default_rng(4).normal(size=(3, 400)) * 3).astype(np.float32)


def called(capsys, *arguments):
    """Return status, standard output and standard error of a command."""
    try:
        status = main([str(argument) for argument in arguments])
    except SystemExit as stopped:
        status = stopped.code
    return status, *capsys.readouterr()


@pytest.fixture
def analyze(service_url, capsys):
    return lambda *arguments: called(capsys, "analyze", *arguments, "--url", service_url)


@pytest.fixture
def npy(tmp_path):
    def npy(logits):
        np.save(tmp_path / "logits.npy", logits)
        return tmp_path / "logits.npy"

    return npy


def test_table_curve_and_warnings_fit_a_terminal(analyze, npy, service_url):
    status, out, err = analyze(npy(LOGITS), "--row", 1, "--sweep", "0.2:2:0.1", "--mass", 0.9, "--entropy", 3)
    assert (status, err) == (0, "")
    with Client(service_url) as client:
        result = client.analyze(LOGITS[1], {"from": 0.2, "to": 2, "step": 0.1}, mass=0.9, entropy=3.0)
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("row 1:")
    assert lines[1].split() == ["T", "log", "Z", "F", "U", "S", "C", "e^S", "max", "p", "nucleus"]
    table = [line.split() for line in lines[2:21]]
    assert [float(cells[0]) for cells in table] == pytest.approx(result.temperatures, abs=1e-12)
    assert [float(cells[4]) for cells in table] == pytest.approx(result.entropy[0], rel=1e-4)
    assert [int(cells[8]) for cells in table] == result.nucleus[0].tolist()
    drawn = [line for line in lines if "|" in line]
    assert len(drawn) == 12
    assert drawn[0].rstrip().endswith("*")  # S is largest at the right
    assert f"S = 3 at T = {result.temperature_for_entropy[0]:.10g}" in lines


def test_every_row_by_default_one_bad(analyze, npy):
    bad = LOGITS.copy()
    bad[1, 7] = np.inf
    status, out, err = analyze(npy(bad), "--sweep", "1")
    assert (status, err) == (1, "")
    heads = [line for line in out.splitlines() if line.startswith("row")]
    assert heads[1] == "row 1  non_finite: logit 7 is +inf; only finite values and -inf are legal"
    assert [head[:6] for head in heads] == ["row 0:", "row 1 ", "row 2:"]
    assert "|" not in out  # one temperature is no curve


def test_warnings_and_unreachable_entropy(analyze, npy):
    _, out, _ = analyze(npy(np.array([[1.0, 1.0, 1.0]])), "--entropy", 0.5)
    assert "S = 0.5 at no temperature" in out
    assert "\ndegenerate: all 3 finite logits are 1" in out


def test_json(analyze, npy):
    bad = LOGITS[:2].astype(np.float64)
    bad[1] = -np.inf
    bad[0, 0] = 1e300
    status, out, _ = analyze(npy(bad), "--sweep", "1e-300,1", "--mass", 0.5, "--json")
    good, failed = json.loads(out)
    assert status == 1
    assert good["temperature"] == [1e-300, 1.0]
    assert good["log_z"][0] is None
    assert good["nucleus"] == [1, 1]
    assert (good["error"], good["temperature_for_entropy"]) == (None, None)
    assert failed == {"row": 1, "error": {"code": "all_masked", "detail": "every logit is -inf"}}


def test_plot(analyze, npy, tmp_path):
    status, _, err = analyze(npy(LOGITS), "--plot", tmp_path / "sweep.png")
    assert (status, err) == (0, "")
    assert (tmp_path / "sweep.png").read_bytes().startswith(b"\x89PNG")
    status, _, err = analyze(npy(LOGITS), "--plot", tmp_path / "nowhere" / "sweep.png")
    assert (status, err.count("\n")) == (2, 1)


@pytest.mark.parametrize(
    ("command", "package", "extra"),
    [
        (["analyze", "x.npy", "--plot", "out.png"], "matplotlib", "logitd[plot]"),
        (["verify-theory", "x.npy"], "torch", "logitd[server]"),
    ],
)
def test_a_missing_extra_is_one_line(tmp_path, command, package, extra):
    np.save(tmp_path / "x.npy", LOGITS)
    program = f"import sys; sys.modules[{package!r}] = None; from logitd.cli import main; sys.exit(main({command!r}))"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert extra in done.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--sweep", "1:2"], 2, "expected FROM:TO:STEP"),
        (["--sweep", "a,b"], 2, "expected FROM:TO:STEP"),
        (["--sweep", "2:1:1"], 1, "temperatures.to: must be at least from"),
        (["--sweep", "nan"], 1, "temperatures[0]"),
        (["--mass", "2"], 1, "mass"),
        (["--row", "3"], 2, "has rows 0 to 2"),
        (["--row", "-1"], 2, "has rows 0 to 2"),
        (["--plot", "out.xyz"], 2, "must end in one of"),
    ],
)
def test_refusals(analyze, npy, arguments, status, said):
    found, out, err = analyze(npy(LOGITS), *arguments)
    assert (found, out) == (status, "")
    assert said in err


def test_integers_are_refused(analyze, npy):
    assert analyze(npy(np.array([[1, 2]])))[0] == 2


@pytest.mark.parametrize("temperatures", [[1.0, 2.0], [2.0, 0.5, 1.0], [1e-300, 1e300]])
def test_curve_runs_from_least_to_most(temperatures):
    entropies = [math.log1p(temperature) for temperature in temperatures]
    lines = list(curve(temperatures, entropies))
    assert max(map(len, lines)) <= 80
    assert lines[11].split("|")[1].startswith("*")
    assert lines[0].endswith("*")
    assert sum(line.count("*") for line in lines) == 64


def test_curve_of_a_level_row_is_level():
    assert sum("*" in line for line in curve([1.0, 2.0], [0.5, 0.5])) == 1


def test_theory_on_a_file(capsys, npy):
    status, out, err = called(capsys, "verify-theory", npy(LOGITS), "--row", 2)
    lines = out.splitlines()
    assert (status, err) == (0, "")
    assert lines[0].endswith("logits.npy, row 2; V = 400")
    assert [line[:4] for line in lines[1:-1]] == ["pass"] * 6
    assert lines[-1] == "6 laws hold"


def test_theory_that_does_not_hold_fails(capsys, npy, monkeypatch):
    wrong = theory.Computed.probabilities
    monkeypatch.setattr(theory.Computed, "probabilities", lambda self, t: wrong(self, 1.01 * t))
    status, out, _ = called(capsys, "verify-theory", npy(LOGITS))
    assert status == 1
    assert [line.split("  ")[1] for line in out.splitlines() if line.startswith("FAIL")] == ["boltzmann"]
    assert out.splitlines()[-1] == "1 of 6 laws do not hold"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing.npy"], "No such file"),
        (["logits.npy", "--row", "3"], "has rows 0 to 2"),
        (["--row", "1"], "--row goes with a file"),
    ],
)
def test_theory_refusals(capsys, npy, monkeypatch, arguments, said):
    monkeypatch.chdir(npy(LOGITS).parent)
    status, out, err = called(capsys, "verify-theory", *arguments)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert said in err


def test_theory_on_a_bad_row(capsys, npy):
    status, out, err = called(capsys, "verify-theory", npy(np.array([[1.0, np.nan]])))
    assert (status, out) == (2, "")
    assert err.endswith("row 0: non_finite: logit 1 is NaN; only finite values and -inf are legal\n")


def test_theory_without_a_file_takes_zipfs_law_where_there_is_no_model(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pocketsphinx", None)
    monkeypatch.setattr("logitd.cli.real_row._WORDS", 1000)
    status, out, _ = called(capsys, "verify-theory")
    assert status == 0
    assert out.startswith("generated: ln p = -ln rank over 1,000 tokens (Zipf's law); V = 1,000\n")


@pytest.mark.long
def test_theory_without_a_file_takes_a_real_row(capsys):
    pytest.importorskip("pocketsphinx")
    status, out, _ = called(capsys, "verify-theory")
    assert status == 0
    assert out.startswith('real: the words after "this is", 126,052 of a trigram model; V = 126,052\n')
