"""`logitd attention` against a real service."""

import io
import json
import re
import socket
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.numpy import save as save_numpy
from safetensors.torch import save as save_torch
from test_attention import attended, tensors

from logitd import Client
from logitd.cli import main
from logitd.client.attention_call import compare_call

METHODS = ["--method", "moment", "--method", "trig", "--feature-dim", 16, "--feature-dim", 32]
TITLES = ["method", "features", "median error", "90% below", "rank correlation", "cost", "seconds", "bytes kept"]


@pytest.fixture(scope="module")
def sent():
    """A head that second order fits and one that it does not."""
    smooth, rough = tensors(500, heads=1, dim=16, spread=0.5), tensors(500, heads=1, dim=16, spread=3, seed=1)
    return {name: np.concatenate([smooth[name], rough[name]], 1) for name in smooth}


@pytest.fixture
def file(tmp_path, sent):
    (tmp_path / "qkv.safetensors").write_bytes(save_numpy(sent))
    return tmp_path / "qkv.safetensors"


@pytest.fixture
def run(service_url, capsys):
    """`run("compare", …)` → status, standard output, standard error."""

    def run(command, *arguments):
        try:
            status = main(["attention", command, *map(str, arguments), "--url", service_url])
        except SystemExit as stopped:
            status = stopped.code
        return status, *capsys.readouterr()

    return run


@pytest.fixture
def feed(monkeypatch):
    """Put bytes on standard input."""

    def feed(content):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))

    return feed


def cells(line):
    return re.split(r" {2,}", line.strip())


def test_tables_hold_trials_and_recommendations(run, file, sent, service_url):
    status, out, err = run("compare", file, *METHODS)
    assert (status, err) == (0, "")
    trials, heads = (part.splitlines() for part in out.rstrip("\n").split("\n\n"))
    with Client(service_url) as client:
        found = client.attention_compare(**sent, methods=["moment", "trig"], feature_dims=[16, 32])
    assert cells(trials[0]) == TITLES
    for line, trial in zip(trials[1:], found.trials, strict=True):
        shown = cells(line)
        features = "-" if trial.feature_dim is None else str(trial.feature_dim)
        assert shown[:2] == [trial.method, features]
        assert shown[2] == f"{trial.relative_error.min():.3g}"  # the lower of two heads is their median
        assert shown[3] == f"{trial.relative_error.max():.3g}"
        assert float(shown[4]) == pytest.approx(np.mean([h.rank_correlation for h in trial.heads[0]]), rel=1e-2)
        assert shown[5] == f"{trial.cost:.3g}"
        assert shown[7] == str(trial.state_bytes or found.kv_bytes)
        failed = sum(head.nonpositive_rows for head in trial.heads[0])
        assert shown[8:] == ([f"{failed} queries without a normaliser"] if failed else [])
    assert cells(heads[0]) == ["batch", "head", "use", "features", "error", "cost", "why"]
    for place, (line, advice) in enumerate(zip(heads[1:], found.heads[0], strict=True)):
        use = advice.recommendation
        numbers = ["-", f"{use.expected_error:.3g}", f"{use.cost:.3g}"]
        assert cells(line) == ["0", str(place), use.mode, *numbers, use.reason]
    assert len({line.index(cells(line)[-1]) for line in heads[1:]}) == 1  # reasons begin in one column


def test_json_holds_the_comparison(run, file):
    status, out, _ = run("compare", file, "--method", "elu", "--tolerance", 5, "--json")
    found = json.loads(out)
    assert status == 0
    assert [trial["method"] for trial in found["trials"]] == ["exact", "elu"]
    assert found["tolerance"] == 5
    assert [head["recommendation"]["mode"] for head in found["heads"][0]] == ["elu", "elu"]
    assert set(found["trials"][1]["heads"][0][0]) >= {"relative_error", "rank_correlation"}


def test_every_flag_is_a_field(run, file, service_url, sent):
    fields = {"causal": True, "scale": 0.1, "rank": 3, "audit_rows": 9, "seed": 4, "tolerance": 0.3}
    flags = ["--causal", "--scale", 0.1, "--rank", 3, "--audit-rows", 9, "--seed", 4, "--tolerance", 0.3]
    _, out, _ = run("compare", file, "--method", "moment", *flags, "--json")
    with Client(service_url) as client:
        found = client.attention_compare(**sent, methods=["moment"], **fields)
    shown = json.loads(out)
    assert shown["trials"][1]["heads"][0][0]["relative_error"] == found.trials[1].relative_error[0, 0]
    assert shown["tolerance"] == 0.3
    _, out, _ = run("compare", file, "--method", "moment", "--window", 5, "--json")
    assert [trial["method"] for trial in json.loads(out)["trials"]] == ["exact"]  # moment cannot have a window


def as_npz(sent):
    stream = io.BytesIO()
    np.savez(stream, **sent)
    return stream.getvalue()


@pytest.mark.parametrize("piped", [False, True], ids=["file", "stdin"])
@pytest.mark.parametrize(
    "write",
    [
        as_npz,
        lambda sent: save_numpy({**sent, "other": np.arange(3)}),
        lambda sent: save_torch({name: torch.from_numpy(array).bfloat16() for name, array in sent.items()}),
        lambda sent: compare_call(**sent, extras={"lengths": [400]}, fields={}, progress=None).body,
        lambda sent: save_numpy({name: array[0] for name, array in sent.items()}),
    ],
    ids=["npz", "safetensors", "bfloat16", "request-body", "no-batch"],
)
def test_formats(run, feed, tmp_path, sent, write, piped):
    (tmp_path / "qkv").write_bytes(write(sent))
    if piped:
        feed((tmp_path / "qkv").read_bytes())
    status, out, err = run("compare", "-" if piped else tmp_path / "qkv", "--method", "moment")
    assert (status, err) == (0, "")
    assert len(out.splitlines()) == 7


def test_layout(run, tmp_path, sent):
    turned = {name: np.ascontiguousarray(array.transpose(0, 2, 1, 3)) for name, array in sent.items()}
    (tmp_path / "turned").write_bytes(save_numpy(turned))
    _, out, _ = run("compare", tmp_path / "turned", "--layout", "BLHD", "--method", "elu", "--json")
    assert len(json.loads(out)["heads"][0]) == 2


class Terminal(io.StringIO):
    def isatty(self):
        return True

    def drawn(self):
        """Return each state of the line, without the spaces that end it."""
        return [line.rstrip() for line in self.getvalue().split("\r\x1b[K")]


def test_a_bar_is_drawn_on_a_terminal_and_gone_at_the_end(run, file, monkeypatch):
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    assert run("compare", file, *METHODS)[0] == 0
    assert terminal.drawn() == [
        "",
        "[                        ] waiting for the first trial",
        "[######                  ] 1/4 exact",
        "[############            ] 2/4 moment",
        "[##################      ] 3/4 trig 16",
        "[########################] 4/4 trig 32",
        "",
    ]


def test_a_bar_fits_its_terminal_and_leaves_it_to_an_error(run, file, monkeypatch):
    monkeypatch.setenv("COLUMNS", "45")
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    assert run("compare", file, "--method", "magic")[:2] == (1, "")
    assert terminal.drawn()[1] == "[                        ] waiting for the first trial"[:44]
    assert terminal.drawn()[2].startswith("logitd: ")


@pytest.mark.parametrize(("ending", "magic"), [("png", b"\x89PNG\r\n\x1a\n"), ("svg", b"<?xml"), ("pdf", b"%PDF-")])
def test_plot(run, file, tmp_path, ending, magic):
    path = tmp_path / f"out.{ending}"
    status, out, err = run("compare", file, *METHODS, "--plot", path)
    assert (status, err) == (0, "")
    assert cells(out.splitlines()[0]) == TITLES
    assert path.read_bytes().startswith(magic)
    if ending == "svg":
        drawn = path.read_text()
        assert all(f"<!-- {text} -->" in drawn for text in ("moment", "trig", "tolerance"))
        assert "<!-- exact -->" not in drawn


def test_a_plot_of_nothing(run, tmp_path):
    (tmp_path / "empty").write_bytes(save_numpy(dict.fromkeys("qkv", np.zeros((0, 1, 2, 4), np.float32))))
    status, out, _ = run("compare", tmp_path / "empty", "--plot", tmp_path / "out.png")
    assert status == 0
    assert cells(out.splitlines()[1])[:5] == ["exact", "-", "-", "-", "-"]
    assert (tmp_path / "out.png").stat().st_size > 1000


def test_a_plot_that_cannot_be_made_is_one_line(run, file, tmp_path, monkeypatch):
    status, out, err = run("compare", file, "--plot", "out.xyz")
    assert (status, out) == (2, "")
    assert err.startswith("logitd: --plot out.xyz: the name must end in one of ")
    status, out, err = run("compare", file, "--method", "elu", "--plot", tmp_path / "none" / "out.png")
    assert status == 2
    assert "elu" in out
    assert err == f"logitd: --plot {tmp_path}/none/out.png: No such file or directory\n"
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "matplotlib.figure", raising=False)
    status, out, err = run("compare", file, "--plot", "out.png")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "pip install 'logitd[plot]'" in err


def test_matplotlib_is_imported_only_for_a_plot(service_url, file):
    code = (
        "import sys; from logitd.cli import main; status = main(sys.argv[1:]);"
        "assert 'matplotlib' not in sys.modules and 'torch' not in sys.modules; sys.exit(status)"
    )
    command = [sys.executable, "-c", code, "attention", "compare", file, "--method", "elu", "--url", service_url]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_plan_prints_what_attention_takes(run, tmp_path, sent, service_url):
    layers = {f"{layer}.{name}": array for layer in (0, 12) for name, array in sent.items()}
    (tmp_path / "layers").write_bytes(save_numpy({**layers, "other": np.arange(3)}))
    status, out, err = run("plan", tmp_path / "layers", "--tolerance", 0.2, "--method", "mean_v", "--method", "moment")
    assert (status, err) == (0, "")
    plan = json.loads(out)
    assert (plan["tolerance"], set(plan["layers"])) == (0.2, {"0", "12"})
    _, report = attended(service_url, sent, plan=plan, layer=12, policy="best_effort")
    assert [head["mode"] for head in report["heads"][0]] == plan["layers"]["12"]["modes"]


@pytest.mark.parametrize(
    ("command", "content", "message"),
    [
        ("compare", b"", "is neither .npz nor safetensors"),
        ("compare", b"hello world", "is neither .npz nor safetensors"),
        ("compare", b"PK\x03\x04", "-: "),
        ("compare", as_npz({"q": np.zeros(3)}), "must hold q, k and v, found q"),
        ("compare", save_numpy({"a": np.zeros(3), "b": np.zeros(3)}), "must hold q, k and v, found a, b"),
        ("compare", as_npz(dict.fromkeys("qkv", np.array([{}], object))), "allow_pickle=False"),
        ("compare", as_npz(dict.fromkeys("qkv", np.zeros(3))), "q must have shape [batch, heads, length, dim]"),
        ("compare", as_npz(dict.fromkeys("qkv", np.zeros((1, 1, 1, 1), int))), "q must be one of F16"),
        ("plan", as_npz(dict.fromkeys("qkv", np.zeros((1, 1, 1, 1)))), "must hold 0.q, 0.k, 0.v, 1.q …, found k, q, v"),
        ("plan", as_npz({"0.q": np.zeros((1, 1, 1, 1))}), "layer 0 must have q, k and v, got q"),
    ],
)
def test_what_is_no_call(run, feed, command, content, message):
    feed(content)
    status, out, err = run(command, "-")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("logitd: ")
    assert message in err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--method", "magic"], "422: methods: must be among exact, moment"),
        (["--layout", "LBHD"], "422: layout: "),
        (["--feature-dim", 0], "422: feature_dims[0]: "),
        (["--tolerance", "nan"], "422: tolerance: "),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_what_the_service_refuses_is_one_line(run, file, service_url, flags, message):
    status, out, err = run("compare", file, *flags)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(f"logitd: {service_url}: {message}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "COMMAND"),
        (["plot"], "invalid choice"),
        (["compare"], "FILE"),
        (["compare", "a", "--tolerance", "much"], "--tolerance"),
        (["compare", "a", "--nonsense"], "unrecognized arguments: --nonsense"),
        (["plan", "a", "--plot", "x.png"], "unrecognized arguments"),
        (["compare", "/nowhere/a"], "/nowhere/a: No such file or directory"),
    ],
    ids=["nothing", "unknown", "no-file", "no-number", "flag", "plan-plot", "missing"],
)
def test_usage(capsys, arguments, message):
    try:
        status = main(["attention", *arguments])
    except SystemExit as stopped:
        status = stopped.code
    assert status == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("command", ["compare", "plan"])
def test_nothing_listens(capsys, tmp_path, sent, command):
    (tmp_path / "both").write_bytes(save_numpy({**sent, **{f"0.{name}": array for name, array in sent.items()}}))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    assert main(["attention", command, str(tmp_path / "both"), "--url", url]) == 1
    assert capsys.readouterr() == ("", f"logitd: {url}: [Errno 111] Connection refused\n")
