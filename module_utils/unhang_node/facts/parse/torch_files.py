"""Parses files and folder names of an installed torch; imports nothing."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_VERSION = re.compile(r"^__version__ {0,8}(?::[^=\n]{0,64})?= {0,8}['\"]([^'\"]{1,128})['\"]", re.M)
_CUDA = re.compile(r"^cuda {0,8}(?::[^=\n]{0,64})?= {0,8}(?:['\"]([^'\"]{1,64})['\"]|(None))", re.M)
_DISTRIBUTION = re.compile(
    r"^([A-Za-z0-9][A-Za-z0-9._]*?)-([0-9][^-]*?)(?:-py[0-9.]+)?\.(?:dist-info|egg-info)$"
)
# Packages that change how a job starts, compiles or communicates.
PACKAGES = frozenset(
    [
        "torch",
        "torchvision",
        "triton",
        "numpy",
        "accelerate",
        "lightning",
        "pytorch-lightning",
        "deepspeed",
        "transformers",
        "peft",
        "trl",
        "fairscale",
    ]
    + [
        "megatron-core",
        "flash-attn",
        "apex",
        "xformers",
        "horovod",
        "ninja",
        "vllm",
        "ray",
        "torchtitan",
        "torchtune",
        "nemo-toolkit",
        "mpi4py",
    ]
)
WHEELS: tuple[str, ...] = (
    "nvidia-nccl-",
    "nvidia-cudnn-",
    "nvidia-cuda-runtime",
    "nvidia-cuda-nvrtc",
    "nvidia-cuda-nvcc",
    "nvidia-cublas",
    "nvidia-nvshmem",
)
WHEELS += ("nvidia-nvjitlink", "transformer-engine", "flash-attn")


def parse_version_py(text: str) -> tuple[str | None, str | None, bool | None]:
    """(torch, cuda, has_cuda) of torch/version.py. cuda None and has_cuda False for a build without
    CUDA; has_cuda None when the file does not show it."""
    version, cuda = _VERSION.search(text), _CUDA.search(text)
    has_cuda = None if cuda is None else cuda.group(1) is not None
    return version.group(1) if version else None, cuda.group(1) if cuda else None, has_cuda


def parse_distributions(names: Iterable[str]) -> dict[str, str]:
    """{package: version} from the dist-info and egg-info folders among `names`, for the packages of
    interest; names in PyPI's form, lower case with dashes."""
    found = {}
    for name in names:
        match = _DISTRIBUTION.match(name) if name.endswith("-info") else None
        if match:
            package = re.sub(r"[-_.]+", "-", match.group(1)).lower()
            if package in PACKAGES or package.startswith(WHEELS):
                found[package] = match.group(2)[:256]
    return dict(sorted(found.items())[:64])


def wheel_version(packages: dict[str, str], prefix: str) -> str | None:
    """Version of the one wheel whose name begins with `prefix` (nvidia-nccl-), or None."""
    return next((version for name, version in packages.items() if name.startswith(prefix)), None)


def python_of(site_packages: str) -> str | None:
    """3.11 from …/lib/python3.11/site-packages, None for a path without a version."""
    found = re.search(r"/python(3\.\d+)(?:t)?/", site_packages)
    return found.group(1) if found else None
