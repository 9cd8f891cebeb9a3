"""Phase build: a tiny extension, as fused kernels are built at the start of a training."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time

from .processes import die_with_parent
from .run import Failed

BUILD_SOURCE = "#include <torch/extension.h>\nint answer() { return 42; }\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def(\"answer\", &answer); }\n"
BUILD_PROGRAM = """
import sys, time
from torch.utils import cpp_extension
began = time.time()
cuda = sys.argv[2] == "cuda"
source = open(sys.argv[1] + "/x.cpp").read()
kernel = "__global__ void k(int* x) { *x = 42; }\\nint answer_cuda() { return 42; }\\n"
module = cpp_extension.load_inline("unhang_build", [source], [kernel] if cuda else [], build_directory=sys.argv[1])
assert module.answer() == 42
print("built in %.1f s" % (time.time() - began))
"""


def phase_build(run):
    """A tiny extension, as fused kernels are built at the start of a training, in a cache of its own: how long does it take, does it end?"""
    if run.local_rank != 0:
        return {"skip": "built by the first rank of each node"}
    with_cuda = run.device.type == "cuda" and bool(shutil.which("nvcc"))
    missing = [name for name in ("ninja", "c++") if not shutil.which(name)]
    if missing:
        return {"skip": "not installed: %s; extensions cannot be built on this node" % ", ".join(missing)}
    folder = tempfile.mkdtemp(prefix="unhang-build-")
    limit_s = max(1.0, run.phase_until - time.monotonic() - 5)
    run.step("build an extension", limit_s)
    try:
        with open(os.path.join(folder, "x.cpp"), "w", encoding="ascii") as source:
            source.write(BUILD_SOURCE)
        words = [sys.executable, "-c", BUILD_PROGRAM, folder, "cuda" if with_cuda else "cpp"]
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit_s, preexec_fn=die_with_parent, check=False, text=True)
    except subprocess.TimeoutExpired:
        raise Failed("expected an extension to be built within %.0f s, found the compiler still at work" % limit_s) from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if done.returncode:
        raise Failed("expected an extension to build, found: %s" % " ".join(done.stdout.split())[-300:])
    return {"built": done.stdout.strip().splitlines()[-1], "cuda": with_cuda}
