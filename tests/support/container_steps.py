"""Runs the steps of a Containerfile in a plain Debian root, in mounts of their own that end with
them: no image is built, and no container engine is needed."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

SUITE = "bookworm"
DEADLINE_S = 900
# The settings with which this machine reaches its package registries, passed to the root; an image
# would have its own.
SHARED = (
    "/etc/apt/sources.list.d/debian.sources",
    "/etc/apt/apt.conf.d",
    "/etc/apt/auth.conf.d",
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/pip.conf",
)
# CA certificates that this machine trusts; at another path in the root, whose own list a step
# writes
AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"
PASSED_ON = (
    "PIP_",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "NO_PROXY",
)


def plain_root(cache):
    """A tar file of Debian 12 as mmdebstrap makes it (minbase), made once; about the same as the
    image named in FROM."""
    cache.mkdir(parents=True, exist_ok=True)
    archive = cache / f"{SUITE}-minbase.tar"
    if not archive.exists():
        partial = archive.with_suffix(f".{os.getpid()}.tar")
        done = subprocess.run(
            ["unshare", "--mount", "mmdebstrap", "--variant=minbase", SUITE, partial],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        partial.rename(archive)
    return archive


def steps_of(containerfile):
    """[(instruction, arguments)] of a Containerfile, with continued lines joined."""
    text = Path(containerfile).read_text(encoding="utf-8").replace("\\\n", " ")
    lines = (line.strip() for line in text.splitlines())
    return [tuple(line.split(None, 1)) for line in lines if line and not line.startswith("#")]


def script_of(steps, context, then):
    """A shell script that runs the steps in the root $ROOT, and `then` as the image's user in its
    folder."""
    user, place = "root", "/"
    lines = ["set -eu"]
    for name, arguments in steps:
        if name == "RUN":
            lines.append(f'chroot "$ROOT" sh -ec {shlex.quote(arguments)}')
        elif name == "COPY":
            *sources, target = arguments.split()
            lines += [
                f'mkdir -p "$ROOT"{target}',
                *(f'cp {context}/{source} "$ROOT"{target}' for source in sources),
            ]
        elif name == "USER":
            user = arguments
        elif name == "WORKDIR":
            place = arguments
            lines.append(
                f'mkdir -p "$ROOT"{place} && chown "$(chroot "$ROOT" id -u {user})" "$ROOT"{place}'
            )
        else:
            assert name in ("ARG", "FROM", "ENTRYPOINT"), f"no way to play {name}"
    inside = f"cd {place} && {then}"
    return "\n".join(
        [
            *lines,
            (
                f'chroot --userspec={user} "$ROOT" env HOME=/home/{user}'
                f" PATH=/usr/local/bin:/usr/bin:/bin sh -ec {shlex.quote(inside)}"
            ),
        ]
    )


def play(containerfile, context, root, then):
    """The finished script: returncode, stdout, stderr. root: a tar file; context: the folder from
    which COPY copies."""
    setup = [
        "set -eu", "ROOT=$(mktemp -d)", "trap 'umount -R \"$ROOT\"; rmdir \"$ROOT\"' EXIT",
        'mount -t tmpfs -o size=4g,mode=755 none "$ROOT"',
        f'tar -C "$ROOT" -xf {root}', 'mount -t proc none "$ROOT/proc"',
        'mount --rbind /dev "$ROOT/dev"',
        *(f'[ ! -e {path} ] || {{ rm -rf "$ROOT"{path}; mkdir -p "$(dirname "$ROOT"{path})"; cp -rL {path} "$ROOT"{path}; }}' for path in SHARED),
        f'rm -f "$ROOT/etc/apt/sources.list"; cp {AUTHORITIES} "$ROOT/var/authorities"',
    ]  # fmt: skip
    script = "\n".join([*setup, script_of(steps_of(containerfile), context, then)])
    environment = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "DEBIAN_FRONTEND": "noninteractive",
        "LANG": "C.UTF-8",
    }
    environment |= {
        name: value
        for name, value in os.environ.items()
        if name.startswith(PASSED_ON) and name != "PIP_FIND_LINKS"
    }
    environment |= dict.fromkeys(("PIP_CERT", "SSL_CERT_FILE"), "/var/authorities")
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script]
    return subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=DEADLINE_S,
        check=False,
    )
