"""Configuration of Docker, containerd, the NVIDIA container toolkit and the kubelet. Part of
section `node`."""

from __future__ import annotations

from ...base.parse.values import clean
from ..parse.container_config import parse_containerd, parse_docker, parse_kubelet, parse_toolkit
from .reading import drop_ins, first_there, names_if_there, there

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ...base.root import Root
    from ...base.section import Unread

DOCKER = ("/etc/docker/daemon.json",)
CONTAINERD = ("/etc/containerd/config.toml",)
# Of the containerd that a distribution of Kubernetes brings along; then the one above, if there is
# any, belongs to Docker.
OWN_CONTAINERD = (
    "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
    "/var/snap/microk8s/current/args/containerd.toml",
    "/run/k0s/containerd-cri.toml",
)
TOOLKIT = ("/etc/nvidia-container-runtime/config.toml",)
KUBELET = (
    "/var/lib/kubelet/config.yaml",
    "/etc/kubernetes/kubelet/kubelet-config.yaml",
    "/home/kubernetes/kubelet-config.yaml",
)
BYTES = 1 << 18
# links to /dev/nvidia* by device number; without them, running containers lose their GPUs when
# systemd reloads
NVIDIA_MAJOR = "195:"


def read_container_config(root: Root, unread: Unread) -> dict[str, Any]:
    """{docker, containerd, toolkit, kubelet, device_links}; null for a program without a
    configuration file."""
    found: dict[str, Any] = {
        "docker": read_file(root, unread, "docker", DOCKER, read_docker),
        "containerd": read_containerd_config(root, unread),
        "toolkit": read_file(root, unread, "toolkit", TOOLKIT, read_toolkit),
        "kubelet": read_file(root, unread, "kubelet", KUBELET, read_kubelet),
        "device_links": any(
            name.startswith(NVIDIA_MAJOR) for name in names_if_there(root, "/dev/char")
        ),
    }
    for part, fields in (
        ("docker", ("memlock_bytes", "shm_size_bytes")),
        ("kubelet", ("pod_pids_limit",)),
    ):
        for field in fields:
            if found[part] and found[part][field] is None:
                unread.add(f"containers.{part}.{field}", "absent", "the file does not set it")
    return found


def read_containerd_config(root: Root, unread: Unread) -> dict[str, Any] | None:
    """The configuration of the containerd that runs pods; None, with the reason, if there is none
    or it cannot be read."""
    try:
        own = first_there(root, OWN_CONTAINERD)
    except OSError as problem:
        unread.of_error("containers.containerd", problem)
        return None
    if own is not None:
        return unread.attempt("containers.containerd", read_own_containerd, root, own)
    return read_file(root, unread, "containerd", CONTAINERD, read_containerd)


def read_file(
    root: Root,
    unread: Unread,
    name: str,
    paths: tuple[str, ...],
    read: Callable[[Root, str], dict[str, Any]],
) -> dict[str, Any] | None:
    """The content of the first file that exists, read by `read`; None, with the reason, if there is
    none or it cannot be read."""
    field = "containers." + name
    try:
        path = first_there(root, paths)
    except OSError as problem:
        unread.of_error(field, problem)
        return None
    if path is None:
        unread.add(field, "absent", "no " + " nor ".join(paths))
        return None
    return unread.attempt(field, read, root, path)


def read_docker(root: Root, path: str) -> dict[str, Any]:
    """Docker's configuration; `fault` is the error of a file that dockerd would refuse. Raises
    OSError."""
    text = root.text(path, BYTES)
    try:
        return dict(parse_docker(text if text.strip() else "{}"), fault="")
    except ValueError as problem:
        return dict(parse_docker("{}"), fault=clean(f"{path}: {problem}", 512))


def read_own_containerd(root: Root, path: str) -> dict[str, Any]:
    """The configuration that a distribution of Kubernetes writes for its containerd. Raises
    OSError."""
    return parse_containerd(root.text(path, BYTES))


def read_containerd(root: Root, path: str) -> dict[str, Any]:
    """containerd's configuration, overridden by that of /etc/containerd/conf.d. Raises OSError."""
    found = parse_containerd(root.text(path, BYTES))
    for file in drop_ins(root, ["/etc/containerd/conf.d"], ".toml"):
        over = parse_containerd(root.text(file, BYTES))
        names = {row["name"] for row in over["runtimes"]}
        rows = [row for row in found["runtimes"] if row["name"] not in names] + over["runtimes"]
        found["runtimes"] = sorted(rows, key=lambda row: row["name"])
        found["default_runtime"] = over["default_runtime"] or found["default_runtime"]
        found["disabled_plugins"] = over["disabled_plugins"] or found["disabled_plugins"]
        found["cdi"] = found["cdi"] or over["cdi"]
    return found


def read_toolkit(root: Root, path: str) -> dict[str, Any]:
    """The toolkit's configuration, and whether the ldconfig that it names is there. Raises
    OSError."""
    found = parse_toolkit(root.text(path, BYTES))
    program = found["ldconfig"].lstrip("@")
    return dict(found, ldconfig_there=there(root, program) if program.startswith("/") else True)


def read_kubelet(root: Root, path: str) -> dict[str, Any]:
    """The kubelet's configuration. Raises OSError."""
    return parse_kubelet(root.text(path, BYTES))
