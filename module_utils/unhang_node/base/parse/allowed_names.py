"""The environment variables that may leave a node. Run folders are mailed around, so all other
variables stay on the node."""

from __future__ import annotations

from .assignment import Assignment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

PREFIXES = (
    "NCCL_",
    "TORCH_",
    "CUDA_",
    "GLOO_",
    "OFI_NCCL_",
    "PYTORCH_CUDA_",
    "FI_EFA_",
    "RDMAV_",
    "ENABLE_NCCL_",
    "NVIDIA_IMEX_",
)
NAMES = frozenset(
    [
        "NVIDIA_VISIBLE_DEVICES",
        "NVIDIA_DRIVER_CAPABILITIES",
        "NVIDIA_DISABLE_REQUIRE",
        "PYTORCH_ALLOC_CONF",
        "OMP_NUM_THREADS",
        "MAX_JOBS",
    ]
    + [
        "MASTER_ADDR",
        "MASTER_PORT",
        "FI_PROVIDER",
        "UCX_TLS",
        "UCX_NET_DEVICES",
        "UCX_IB_GID_INDEX",
        "UCX_IB_TRAFFIC_CLASS",
        "UCX_RNDV_SCHEME",
    ]
    + ["UCX_MEMTYPE_CACHE", "SHARP_COLL_LOG_LEVEL", "MELLANOX_VISIBLE_DEVICES"]
)
# Of these values only the parts that name libraries of interest are useful; the other parts may
# reveal much about a user.
PATH_LISTS = frozenset(["LD_LIBRARY_PATH", "LD_PRELOAD"])
PATH_WORDS = ("nccl", "cuda", "nvidia", "ofi", "ucx", "hpcx", "sharp", "tcpx")
# A name that indicates a secret never leaves the node, whatever it begins with.
SECRETS = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "API_KEY", "APIKEY", "PRIVATE")
# Container images describe themselves in these: no program reads them as settings.
NOT_SETTINGS = frozenset(["NCCL_VERSION", "CUDA_VERSION", "CUDNN_VERSION"])
VALUE_LIMIT = 4096
NAME_LIMIT = 256


def is_allowed(name: str) -> bool:
    """True for a variable whose value may leave the node. Case is ignored (nccl_debug is a mistake
    that the audit reports), and so are "#", blanks and a shell's export before it."""
    bare = name.strip(" \t#").upper()
    if bare.startswith("EXPORT "):
        bare = bare[len("EXPORT ") :].strip()
    if any(word in bare for word in SECRETS) or len(name) > NAME_LIMIT or bare in NOT_SETTINGS:
        return False
    return bare.startswith(PREFIXES) or bare in NAMES or bare in PATH_LISTS


def allowed_value(name: str, value: Any) -> str | None:
    """The part of an allowed variable's value that may be allowed_assignments, None when nothing of
    it may."""
    if value is None or name.strip(" \t#").upper() not in PATH_LISTS:
        return value if value is None else value[:VALUE_LIMIT]
    parts = [part for part in value.split(":") if any(word in part.lower() for word in PATH_WORDS)]
    return ":".join(parts)[:VALUE_LIMIT] or None


def allowed_assignments(assignments: Iterable[Assignment]) -> list[Assignment]:
    """Those of `assignments` whose names are allowed, values cut down to what may leave the
    node."""
    rows = []
    for assignment in assignments:
        if not is_allowed(assignment.name):
            continue
        value = allowed_value(assignment.name, assignment.value)
        if value is not None or assignment.value is None:
            rows.append(
                Assignment(
                    name=assignment.name,
                    value=value,
                    line=assignment.line,
                    certain=assignment.certain,
                )
            )
    return rows
