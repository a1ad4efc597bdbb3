"""Linear attention's kernels, compiled ahead of time for every architecture: no device needed, no spills.

Run as a script, it compiles for one architecture, as `test_triton_compile` does for sampling and for the same reason.
"""

import json
import os
import subprocess
import sys

import pytest
from test_triton_compile import ARCHITECTURES, POINTERS, resources

FEATURES, LENGTH = 144, 4096
CASES = [("fp32", 64, True), ("fp32", 64, False), ("bf16", 128, True), ("fp16", 16, True)]


def compiled(kernel, architecture, dtype, dims, causal, **options):
    """Compile a kernel as a launch on dense tensors would: sizes that 16 divides are known to be."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from logitd_kernels.attention.triton import launch

    names = kernel.arg_names
    constants = launch.constants(names, dims, causal) | {
        f"{each}_stride_{last}": 1 for each, last in ("qm", "km", "vd")
    }
    constants = {name: value for name, value in constants.items() if name in names}
    whole = {"n_keys", "n_queries", "n_features", "n_dims"}
    whole |= {f"{each}_stride_{dim}" for each in "qkv" for dim in "nl"}
    signature = {
        name: "constexpr" if name in constants else "*fp32" if name.endswith("ptr") else "i32" for name in names
    }
    signature["v_ptr"] = POINTERS[dtype]
    source = ASTSource(
        fn=kernel,
        signature=signature,
        constexprs=constants,
        attrs={
            (place,): [["tt.divisibility", 16]]
            for place, name in enumerate(names)
            if name not in constants and (name.endswith("_ptr") or name in whole)
        },
    )
    return triton.compile(source, GPUTarget("cuda", architecture, 32), options=launch.OPTIONS[kernel] | options)


def main(architecture):
    """Print a line of JSON for each kernel and case; the last is a kernel that is made to spill."""
    from logitd_kernels.attention.triton import launch

    for kernel in launch.OPTIONS:
        for dtype, dims, causal in CASES:
            if causal or "CAUSAL" in kernel.arg_names:
                told = {"kernel": kernel.fn.__name__, "dtype": dtype, "dims": dims, "causal": causal}
                binary = compiled(kernel, architecture, dtype, dims, causal)
                sys.stdout.write(json.dumps(told | {"shared": binary.metadata.shared} | resources(binary)) + "\n")
    squeezed = compiled(launch.read_kernel, architecture, "fp32", 64, True, maxnreg=64)
    sys.stdout.write(json.dumps({"kernel": "squeezed"} | resources(squeezed)) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
    sys.exit()

pytest.importorskip("triton")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_kernels_compile_and_do_not_spill(architecture, pytestconfig, tmp_path):
    """What is compiled is kept between runs of the tests."""
    keep = getattr(pytestconfig, "cache", None)
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, __file__, str(architecture)],
        env=environment | {"TRITON_CACHE_DIR": str(keep.mkdir("triton") if keep else tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    *found, squeezed = map(json.loads, done.stdout.splitlines())
    assert len(found) == 7
    assert [one for one in found if one["stack"] or one["local"]] == []
    assert squeezed["stack"] > 0, "a kernel that must spill does not show"
    assert [one for one in found if one["registers"] > 255 or one["shared"] > 99 * 1024] == []
