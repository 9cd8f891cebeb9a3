"""Parses files of modprobe.d: the modules that they forbid and the parameters that they set. Values
in, values out."""

from __future__ import annotations

from ...base.parse.values import clean

NAMES = (
    "nvidia",
    "nouveau",
    "nova",
    "mlx",
    "ib_",
    "rdma",
    "iw_",
    "efa",
    "bnxt",
    "gdrdrv",
    "nv_peer_mem",
    "lnet",
    "ko2iblnd",
    "vfio",
    "kvm",
    "amdgpu",
)


def parse_modprobe(text: str) -> tuple[list[str], list[tuple[str, str, str]]]:
    """([modules that may not be loaded], [(module, parameter, value)]) of GPUs and networks; a line
    "install NAME /bin/false" forbids as "blacklist" does."""
    forbidden, options = [], []
    for line in text.replace("\\\n", " ").splitlines():
        words = line.split()
        if len(words) < 2 or words[0].startswith("#"):
            continue
        name = clean(words[1].replace("-", "_"), 64)
        if not name.startswith(NAMES):
            continue
        if words[0] == "blacklist" or (
            words[0] == "install"
            and len(words) > 2
            and words[2] in ("/bin/false", "/bin/true", "/usr/bin/false", "/usr/bin/true")
        ):
            forbidden.append(name)
        elif words[0] == "options":
            for word in words[2:]:
                parameter, _equals, value = word.partition("=")
                options.append((name, clean(parameter, 128), clean(value.strip('"'), 512)))
    return forbidden, options
