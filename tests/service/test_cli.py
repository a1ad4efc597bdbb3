"""The `logitd` command against a real service."""

import io
import json
import socket
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors.numpy import save as save_numpy
from safetensors.torch import save as save_torch

from logitd import Client, __version__
from logitd.cli import main
from logitd.client.call import sample_call

LOGITS = (np.random.default_rng(2).normal(size=(3, 200)) * 4).astype(np.float32)
SEEDED = ["--temperature", "0.7", "--top-p", "0.9", "--seed", "11"]


@pytest.fixture(scope="module")
def expected(service_url):
    """The tokens that the client gets for LOGITS under SEEDED."""
    with Client(service_url) as client:
        return client.sample(LOGITS, temperature=0.7, top_p=0.9, seed=11).tokens.tolist()


@pytest.fixture
def run(service_url, capsys):
    """`run("sample", …)` → status, standard output, standard error."""

    def run(command, *arguments):
        try:
            status = main([command, *map(str, arguments), "--url", service_url])
        except SystemExit as stopped:
            status = stopped.code
        return status, *capsys.readouterr()

    return run


@pytest.fixture
def npy(tmp_path):
    def npy(logits):
        np.save(tmp_path / "logits.npy", logits)
        return tmp_path / "logits.npy"

    return npy


@pytest.fixture
def feed(monkeypatch):
    """Put bytes on standard input."""

    def feed(content):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))

    return feed


def tokens(output):
    return [row["token"] for row in json.loads(output)]


def test_table_holds_every_number_aligned(run, npy, service_url):
    status, out, err = run("sample", npy(LOGITS), *SEEDED)
    with Client(service_url) as client:
        rows = client.sample(LOGITS, temperature=0.7, top_p=0.9, seed=11).rows
    assert (status, err) == (0, "")
    title, *lines = out.splitlines()
    assert title.split("  ")[-1] == "seed"
    assert title.split() == ["row", "token", "logprob", "entropy", "entropy", "kept", "kept", "mass", "seed"]
    assert len(lines) == 3
    assert len({len(line) for line in [title, *lines]}) == 1
    for index, (line, row) in enumerate(zip(lines, rows, strict=True)):
        numbers = [row.logprob, row.entropy, row.entropy_kept, row.kept, row.kept_mass, row.seed]
        shown = [f"{value:.4f}" if isinstance(value, float) else str(value) for value in numbers]
        assert line.split() == [str(index), str(row.token), *shown]


def test_json_holds_the_rows(run, npy, service_url):
    status, out, _ = run("sample", npy(LOGITS), *SEEDED, "--json", "--logprobs", 2, "--trace")
    with Client(service_url) as client:
        row = client.sample(LOGITS, temperature=0.7, top_p=0.9, seed=11, logprobs=2, trace=True).rows[1]
    shown = json.loads(out)[1]
    assert status == 0
    assert {name: shown[name] for name in ("token", "logprob", "kept", "seed", "exact", "error")} == {
        "token": row.token,
        "logprob": row.logprob,
        "kept": row.kept,
        "seed": 11,
        "exact": True,
        "error": None,
    }
    assert shown["top"] == [{"token": top.token, "logprob": top.logprob} for top in row.top]
    assert [step["transform"] for step in shown["trace"]] == ["temperature", "top_p"]


def test_a_log_probability_beyond_float32_is_null_in_json(run, npy):
    status, out, _ = run("sample", npy(np.array([[0.0, -1e300]])), "--json", "--logprobs", 2)
    assert status == 0
    assert json.loads(out)[0]["top"] == [{"token": 0, "logprob": 0.0}, {"token": 1, "logprob": None}]


def test_top_and_trace_follow_the_table(run, npy):
    status, out, _ = run("sample", npy(LOGITS), *SEEDED, "--logprobs", 2, "--trace", "--n", 2)
    table, tops, traces, notes = (part.splitlines() for part in out.split("\n\n"))
    assert status == 0
    assert table[0].endswith("logprob raw")
    assert table[1].split()[1].count(",") == 1
    assert tops[0].split() == ["row", "top", "token", "logprob"]
    assert [line.split()[:2] for line in tops[1:3]] == [["0", str(token)] for token in np.argsort(-LOGITS[0])[:2]]
    assert [line.split()[:2] for line in traces[1:]] == [
        [str(i), name] for i in range(3) for name in ("temperature", "top_p")
    ]
    assert [line.split(":")[0] for line in notes] == [f"row {i}" for i in range(3) for _ in range(2)]


@pytest.mark.parametrize(
    "content",
    [
        save_numpy({"logits": LOGITS, "other": LOGITS * 0}),
        save_numpy({"anything": LOGITS, "ids": np.arange(3)}),
        sample_call(LOGITS).body,
        json.dumps({"logits": LOGITS.tolist()}).encode(),
        b"\n " + json.dumps(LOGITS.tolist()).encode(),
    ],
    ids=["safetensors", "single-tensor", "request-body", "json-object", "json-list"],
)
@pytest.mark.parametrize("piped", [False, True], ids=["file", "stdin"])
def test_formats(run, feed, tmp_path, expected, content, piped):
    (tmp_path / "logits").write_bytes(content)
    if piped:
        feed(content)
    status, out, _ = run("sample", "-" if piped else tmp_path / "logits", *SEEDED, "--json")
    assert (status, tokens(out)) == (0, expected)


def test_npy_on_standard_input(run, feed, npy, expected):
    feed(npy(LOGITS.astype(np.float64)).read_bytes())
    status, out, _ = run("sample", "-", *SEEDED, "--json")
    assert (status, tokens(out)) == (0, expected)


def test_bfloat16_and_one_row(run, tmp_path):
    row = LOGITS[0].astype(ml_dtypes.bfloat16)
    (tmp_path / "row.safetensors").write_bytes(save_torch({"x": torch.from_numpy(row.astype(np.float32)).bfloat16()}))
    status, out, _ = run("sample", tmp_path / "row.safetensors", "--temperature", "0", "--json")
    assert (status, tokens(out)) == (0, [int(row.argmax())])


def test_json_spells_minus_infinity_as_the_service_does(run, feed):
    feed(b'[null, "-inf", -1e9, -Infinity]')
    status, out, _ = run("sample", "-", "--json")
    assert (status, tokens(out)) == (0, [2])


def test_a_mask_in_the_file(run, tmp_path):
    words = np.zeros((3, 7), np.int32)
    words[:, 2] = 1  # token 64 alone
    (tmp_path / "masked").write_bytes(save_numpy({"logits": LOGITS, "mask": words}))
    status, out, _ = run("sample", tmp_path / "masked", "--json")
    assert (status, tokens(out)) == (0, [64] * 3)


def test_compact_and_a_saved_head(run, npy, tmp_path, expected):
    status, out, _ = run("sample", npy(LOGITS), *SEEDED, "--json", "--compact", 100)
    assert (status, tokens(out)) == (0, expected)
    (tmp_path / "head").write_bytes(sample_call(LOGITS, params={"temperature": 0.7}, size=100).body)
    status, out, _ = run("sample", tmp_path / "head", *SEEDED, "--json")
    assert (status, tokens(out)) == (0, expected)


def test_a_head_that_does_not_say_its_vocabulary(run, tmp_path):
    head = {"head_ids": np.array([[3, 1]]), "head_logits": np.array([[2.0, 1.0]]), "log_z": np.array([2.4])}
    (tmp_path / "head").write_bytes(save_numpy(head))
    assert run("sample", tmp_path / "head", "--temperature", 0)[::2] == (
        2,
        f"logitd: {tmp_path}/head: a head form needs --vocab-size\n",
    )
    status, out, _ = run("sample", tmp_path / "head", "--temperature", 0, "--vocab-size", 10, "--json")
    assert (status, tokens(out)) == (0, [3])


def test_any_flag_is_a_parameter_wherever_it_stands(run, npy):
    best = LOGITS[0].argsort()[::-1][:3].tolist()
    flags = ["--temperature=0", "--top-k", "-1", "--ties", "all", "--allow-inexact", "--banned-ids", f"[{best[0]}]"]
    bias = json.dumps({str(best[1]): "-inf"})
    status, out, err = run("sample", *flags, "--logit-bias", bias, npy(LOGITS[0]), "--json", "--n", 1)
    assert (status, err) == (0, "")
    assert tokens(out) == [best[2]]


def test_a_flag_alone_is_true_before_standard_input(run, feed):
    feed(b"[0.0, 9.0]")
    assert run("sample", "--temperature", "0", "--allow-inexact", "-")[0] == 0


def test_a_seed_beyond_float_precision(run, npy):
    _, out, _ = run("sample", npy(LOGITS[0]), "--seed", 2**64 - 1, "--json")
    assert json.loads(out)[0]["seed"] == 2**64 - 1


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--tempratur", "1"], "params.tempratur: unknown parameter"),
        (["--temperature", "hot"], "params.temperature: must be a number, got 'hot'"),
        (["--top-p", "NaN"], "params.top_p: "),
        (["--logprobs-mode", "cooked"], "logprobs_mode: "),
        (["--logprobs", "99999"], "logprobs: at most"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_what_the_service_refuses_is_one_line(run, npy, service_url, flags, message):
    status, out, err = run("sample", npy(LOGITS), *flags)
    assert (status, out) == (1, "")
    assert err.count("\n") == 1
    assert err.startswith(f"logitd: {service_url}: 422: ")
    assert message in err


def test_a_failed_row_shows_its_error(run, npy):
    rows = LOGITS.copy()
    rows[1, 5] = np.nan
    status, out, _ = run("sample", npy(rows), *SEEDED)
    assert status == 1
    assert out.splitlines()[2].split(maxsplit=1) == [
        "1",
        "non_finite: logit 5 is NaN; only finite values and -inf are legal",
    ]
    status, out, _ = run("sample", npy(rows), *SEEDED, "--json")
    assert (status, json.loads(out)[1]["error"]["code"]) == (1, "non_finite")


@pytest.mark.parametrize("flags", [["--strict"], []], ids=["strict", "every-row"])
def test_a_request_refused_for_its_rows(run, npy, flags):
    rows = LOGITS.copy()
    rows[1 if flags else slice(None), 5] = np.nan
    status, _, err = run("sample", npy(rows), *flags)
    assert status == 1
    assert "non_finite" in err
    assert err.count("\n") == 1


def test_an_inexact_row_says_so(run, npy):
    flat = np.zeros((2, 500), np.float32)
    status, out, _ = run("sample", npy(flat), "--compact", 10, "--allow-inexact", "true", "--seed", 1)
    assert status == 0
    assert [line.endswith("not exact") for line in out.splitlines()] == [False, True, True]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is neither"),
        (b"hello", "is neither"),
        (b"3", "must be a list"),
        (b"[[1.0], [1.0, 2.0]]", "same length"),
        (b"[[1.0], 2.0]", "same length"),
        (b'["x"]', "a logit must be a number"),
        (b"[true]", "a logit must be a number"),
        (b"[" + b"9" * 400 + b"]", "too large"),
        (b"[" * 100_000, ""),
        (b'{"logits": [1.0], "params": {}}', "parameters are flags"),
        (b"\x93NUMPY\x01\x00", ""),
        (save_numpy({"a": LOGITS, "b": LOGITS}), "found a, b"),
        (save_numpy({"a": np.arange(3)}), "found none"),
        (save_numpy({"a": LOGITS})[:-1], "data_offsets"),
        (save_numpy({"head_logits": LOGITS}), "head_ids and log_z"),
        (save_numpy({"logits": LOGITS[None]}), "[rows, vocab]"),
    ],
)
def test_what_is_no_logits(run, feed, content, message):
    feed(content)
    status, out, err = run("sample", "-")
    assert (status, out) == (2, "")
    assert err.startswith("logitd: ")
    assert err.count("\n") == 1
    assert message in err


def test_objects_are_never_unpickled(run, npy):
    status, _, err = run("sample", npy(np.array([{"a": 1}], dtype=object)))
    assert status == 2
    assert "allow_pickle=False" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "usage: logitd"),
        (["sample"], "FILE"),
        (["simple"], "invalid choice"),
        (["sample", "a.npy", "b.npy"], "unrecognized arguments: b.npy"),
        (["sample", "--compact", "many", "a.npy"], "--compact"),
        (["info", "--temperature", "1"], "unrecognized arguments"),
        (["sample", "/nowhere/a.npy"], "/nowhere/a.npy: No such file or directory"),
        (["info", "--url", "localhost:8000"], "url must be http://HOST"),
        (["info", "--timeout-seconds", "0"], "timeout_seconds must be above 0"),
    ],
    ids=["nothing", "no-file", "unknown", "two-files", "no-number", "info-flag", "missing", "url", "timeout"],
)
def test_usage(capsys, arguments, message):
    try:
        status = main(arguments)
    except SystemExit as stopped:
        status = stopped.code
    assert status == 2
    assert message in capsys.readouterr().err


def test_compact_must_be_positive(run, npy):
    assert run("sample", npy(LOGITS), "--compact", 0)[0] == 2


def test_nothing_listens(capsys, npy):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    assert main(["sample", str(npy(LOGITS)), "--url", url]) == 1
    assert capsys.readouterr().err == f"logitd: {url}: [Errno 111] Connection refused\n"


def test_info(run, service_url):
    status, out, _ = run("info")
    with Client(service_url) as client:
        assert (status, json.loads(out)) == (0, client.info())
    assert out.startswith('{\n  "')


def test_version(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"logitd {__version__}\n"


def test_serve_has_a_flag_for_every_setting(capsys):
    from logitd.settings import Settings

    with pytest.raises(SystemExit, match="0"):
        main(["serve", "--help"])
    out = capsys.readouterr().out
    assert [name for name in Settings.model_fields if f"--{name.replace('_', '-')} " not in out] == []


def test_serve_refuses_a_bad_setting(capsys):
    assert main(["serve", "--port", "99999999"]) == 2
    assert "--port" in capsys.readouterr().err


def test_serve_without_its_extra():
    code = "import sys; sys.modules['uvicorn'] = None; from logitd.cli import main; sys.exit(main(['serve']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "pip install 'logitd[server]'" in done.stderr


def test_the_module_is_the_command(service_url):
    command = [sys.executable, "-m", "logitd.cli", "sample", "-", "--temperature", "0", "--url", service_url]
    done = subprocess.run(command, input=b"[0.0, 1.0]", capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.splitlines()[1].split()[:2] == [b"0", b"1"]
