"""The GPU kernels, compiled ahead of time for every architecture they are meant for: no device needed, no spills.

Run as a script, it compiles for one architecture and prints what each kernel takes: under TRITON_INTERPRET a process
defines kernels that cannot be compiled, so the tests run it in processes of their own.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ARCHITECTURES = (80, 90, 100)
POINTERS = {"fp32": "*fp32", "bf16": "*bf16", "fp16": "*fp16", "fp64": "*fp64"}
# Logits, V, whether there is a mask, and the kernels: the search is the same for all that it widens to float64.
HOT = ("statistics_kernel", "select_kernel", "token_kernel")
CASES = [
    ("fp32", 128_256, False, (*HOT, "search_kernel")),
    ("fp32", 128_256, True, HOT),
    ("bf16", 262_144, False, HOT),
    ("fp16", 151_936, True, HOT),
    ("fp64", 50_257, False, (*HOT, "search_kernel")),
]
TYPES = {
    "mask_ptr": "*i32",
    "tokens_ptr": "*i64",
    "numbers_ptr": "*fp64",
    "sums_ptr": "*fp64",
    "places_ptr": "*i32",
    "maxima_ptr": "*fp64",
    "list_ptr": "*i32",
    "window_ptr": "*fp64",
    "answers_ptr": "*fp64",
}


def compiled(kernel, architecture, dtype, vocab_size, masked, **options):
    """Compile a kernel as a launch would: sizes that 16 divides are known to be."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from logitd_kernels.select.triton import launch

    division = launch.Division.of(vocab_size)
    constants = division.constants(kernel, launch.WINDOW) | ({} if masked else {"mask_ptr": None})
    sizes = {"x_stride": vocab_size, "n_cols": vocab_size, "n_chunks": division.chunks, "segments": division.segments}
    types = TYPES | {"x_ptr": POINTERS[dtype]} | dict.fromkeys(constants, "constexpr")
    signature = {name: types.get(name, "i32") for name in kernel.arg_names}
    aligned = [name.endswith("_ptr") or sizes.get(name, 1) % 16 == 0 for name in kernel.arg_names]
    source = ASTSource(
        fn=kernel,
        signature=signature,
        constexprs={name: value for name, value in constants.items() if name in signature},
        attrs={
            (place,): [["tt.divisibility", 16]]
            for place, name in enumerate(kernel.arg_names)
            if aligned[place] and signature[name] != "constexpr"
        },
    )
    return triton.compile(source, GPUTarget("cuda", architecture, 32), options=launch.OPTIONS[kernel] | options)


def resources(binary):
    """Return registers, stack and local bytes a thread, as cuobjdump reads them from the cubin."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / "kernel.cubin"
        cubin.write_bytes(binary.asm["cubin"])
        told = subprocess.run([tool, "--dump-resource-usage", cubin], capture_output=True, text=True, check=True).stdout
    pairs = [word.split(":") for word in told.split() if word.count(":") == 1]
    taken = {name: int(value) for name, value in pairs if name in ("REG", "STACK", "LOCAL")}
    return {"registers": taken["REG"], "stack": taken["STACK"], "local": taken["LOCAL"]}


def main(architecture):
    """Print a line of JSON for each kernel and case; the last is a kernel that is made to spill."""
    from logitd_kernels.select.triton import launch

    kernels = {kernel.fn.__name__: kernel for kernel in launch.OPTIONS}
    for dtype, vocab_size, masked, names in CASES:
        for name in names:
            binary = compiled(kernels[name], architecture, dtype, vocab_size, masked)
            wide = "ld.global.v4.b32" in binary.asm["ptx"]
            told = {"kernel": name, "dtype": dtype, "vocab_size": vocab_size, "masked": masked, "wide_loads": wide}
            sys.stdout.write(json.dumps(told | resources(binary)) + "\n")
    squeezed = compiled(kernels["statistics_kernel"], architecture, "fp32", 128_256, True, maxnreg=32)
    sys.stdout.write(json.dumps({"kernel": "squeezed"} | resources(squeezed)) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
    sys.exit()

import pytest  # noqa: E402

pytest.importorskip("triton")


@pytest.fixture(scope="module")
def compilers(pytestconfig, tmp_path_factory):
    """One process for each architecture, all started at once; what is compiled is kept between runs of the tests."""
    keep = getattr(pytestconfig, "cache", None)
    kept = keep.mkdir("triton") if keep else tmp_path_factory.mktemp("triton")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    started = {
        architecture: subprocess.Popen(
            [sys.executable, __file__, str(architecture)],
            env=environment | {"TRITON_CACHE_DIR": str(kept)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for architecture in ARCHITECTURES
    }
    yield started
    for process in started.values():
        process.kill()
        process.communicate()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_kernels_compile_and_do_not_spill(architecture, compilers):
    told, errors = compilers[architecture].communicate()
    assert compilers[architecture].returncode == 0, errors[-4000:]
    *found, squeezed = map(json.loads, told.splitlines())
    assert len(found) == sum(len(names) for *_, names in CASES)
    assert [one for one in found if one["stack"] or one["local"]] == []
    assert squeezed["stack"] > 0, "a kernel that must spill does not show"
    hot = [one for one in found if one["kernel"] in HOT and one["dtype"] != "fp64"]
    assert [one for one in hot if one["registers"] > 128] == [], "two programs no longer fit a multiprocessor"
    reading = [one for one in hot if one["kernel"] == "statistics_kernel"]
    assert all(one["wide_loads"] for one in reading), "the one read of the batch is not made of 16-byte loads"
