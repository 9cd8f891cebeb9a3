"""The disk that every machine starts from: Debian with GRUB and one kernel, and beside it a
repository with a newer kernel. Built once per recipe.

Work that takes long under emulation is done here, where it is fast: packages in the repository are
uncompressed, the initrd uses lz4.

    disk.qcow2   one partition, ext4; GRUB in its boot sector; the older kernel alone; a module from
    outside the kernel that DKMS built for it, loaded
    /srv/repo    on that disk: the newer kernel and its headers, as an apt repository of files
    /srv/other   a third kernel, with its initrd: `cp -a /srv/other/. /` and update-grub make it
    bootable
    key          the private key for root on that disk
    image.json   {"old": release, "new": release, "other": release, "host_key": text}
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

SUITE = "bookworm"
# a small kernel: writing its files and its initrd takes minutes under emulation
FLAVOUR = "cloud-amd64"
PACKAGES = (
    "systemd,systemd-sysv,dbus,udev,openssh-server,python3,python3-apt,iproute2,kmod,procps,ca-certificates,"
    "initramfs-tools,lz4,grub-pc,dkms,gcc,make,dpkg-dev,btrfs-progs"
)
DISK_MIB = 4096
START_MIB = 1
MODULE = "vmtest"
MODULE_SOURCE = f"/usr/src/{MODULE}-1.0"
# Writing a boot sector does not need the system's own init, which takes a minute under emulation.
FIRST_BOOT = """#!/bin/sh
PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev; mount -o remount,rw /
grub-install /dev/vda && update-grub && echo VM-IMAGE-READY >/dev/ttyS0
rm -f /first-boot; sync; mount -o remount,ro /
echo o >/proc/sysrq-trigger; sleep 600
"""
# An emulated second can take many real ones: a kernel that watches for lockups would report some.
# Serial lines are slow, so the kernel prints only its version.
WORDS = (
    "console=ttyS0 no_timer_check nowatchdog rcupdate.rcu_cpu_stall_suppress=1 mitigations=off"
    " loglevel=6"
)
FILES = {
    "/etc/fstab": "/dev/vda1 / ext4 errors=remount-ro 0 1\n",
    "/etc/hostname": "vm\n",
    "/etc/default/grub.d/vm.cfg": (
        f'GRUB_TIMEOUT=1\nGRUB_TERMINAL=serial\nGRUB_CMDLINE_LINUX="{WORDS}"\nGRUB_CMDLINE_LINUX_DEFAULT=""\n'
    ),
    "/etc/systemd/network/20-vm.network": "[Match]\nType=ether\n[Network]\nDHCP=ipv4\n",
    # The modules that the disk needs are listed, because finding them takes a running system.
    "/etc/initramfs-tools/conf.d/vm": "MODULES=list\nCOMPRESS=lz4\nCOMPRESSLEVEL=1\n",
    "/etc/initramfs-tools/modules": "virtio_pci\nvirtio_blk\next4\nbtrfs\n",
    "/etc/apt/sources.list": "deb [trusted=yes] file:/srv/repo ./\n",
    "/etc/default/locale": "",
    f"{MODULE_SOURCE}/{MODULE}.c": '#include <linux/module.h>\nMODULE_LICENSE("GPL");\n',
    f"{MODULE_SOURCE}/Makefile": f"obj-m := {MODULE}.o\n",
    f"{MODULE_SOURCE}/dkms.conf": (
        f'PACKAGE_NAME="{MODULE}"\nPACKAGE_VERSION="1.0"\nBUILT_MODULE_NAME[0]="{MODULE}"\nDEST_MODULE_LOCATION[0]="/extra"\nMAKE[0]="make'
        f' -C $kernel_source_dir M=$dkms_tree/{MODULE}/1.0/build modules"\nAUTOINSTALL="yes"\n'
    ),
    f"/etc/modules-load.d/{MODULE}.conf": f"{MODULE}\n",
    "/first-boot": FIRST_BOOT,
}
MASKED = (
    "apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer"
    " e2scrub_reap.service fstrim.timer systemd-tmpfiles-clean.timer"
    " systemd-networkd-wait-online.service getty@tty1.service"
)
BUILD_DEADLINE_S = 1800
_RELEASE = re.compile(r"^linux-image-(\d+\.\d+\.\d+-\d+-" + FLAVOUR + r") ", re.M)


class ImageError(Exception):
    """The image could not be built; the text says why."""


@dataclass(frozen=True)
class Image:
    """A ready image. old, new, other: kernel releases; host_key: a line of known_hosts without the
    host."""

    folder: Path
    old: str
    new: str
    other: str
    host_key: str

    @property
    def disk(self):
        return self.folder / "disk.qcow2"

    @property
    def key(self):
        return self.folder / "key"


def ready_image(cache):
    """The Image of this recipe and of the archive's three newest kernels, built if it is missing.
    Raises ImageError."""
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = image_folder(cache)
        if folder is None or not (folder / "image.json").is_file():
            run(["apt-get", "-q", "update"])  # files that an old index names may be gone
            releases = newest_three(listed_kernels())
            folder = cache / f"image-{recipe_key(*releases)}"
            build(folder, *releases)
    found = json.loads((folder / "image.json").read_text(encoding="utf-8"))
    return Image(folder, found["old"], found["new"], found["other"], found["host_key"])


def image_folder(cache):
    """The path of the image of this recipe and of the kernels in apt's current index; None where
    the index has none."""
    with contextlib.suppress(ImageError):
        return cache / f"image-{recipe_key(*newest_three(listed_kernels()))}"
    return None


def listed_kernels():
    """apt's index entries of this flavour."""
    return run(["apt-cache", "search", "--names-only", f"^linux-image-[0-9.-]+-{FLAVOUR}$"])


def newest_three(listed):
    """(previous, older, newest) of the releases that apt-cache lists."""
    releases = sorted(
        _RELEASE.findall(listed),
        key=lambda release: [
            int(number) for number in re.findall(r"\d+", release.partition("-cloud")[0])
        ],
    )
    if len(releases) < 3:
        raise ImageError(
            f"expected three kernels linux-image-*-{FLAVOUR} in apt's index, found {releases}; run"
            " apt-get update"
        )
    return tuple(releases[-3:])


def recipe_key(*releases):
    """Twelve hexadecimal digits that change whenever the image's content changes."""
    return hashlib.sha256(
        json.dumps([Path(__file__).read_text(encoding="utf-8"), *releases]).encode()
    ).hexdigest()[:12]


def build(folder, other, old, new):
    """Builds in a temporary folder and moves it to its place as a whole."""
    # also those of earlier recipes and kernels: each has 700 MB
    for remains in folder.parent.glob("image-*"):
        shutil.rmtree(remains)
    partial = folder.with_suffix(".partial")
    partial.mkdir()
    tree = partial / "tree"
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "vm", "-f", str(partial / "key")])
    repository = fetch(partial / "repo", new)
    make_tree(tree, old, repository, partial)
    add_other(tree, partial, other)
    host_key = " ".join(
        (tree / "etc/ssh/ssh_host_ed25519_key.pub").read_text(encoding="ascii").split()[:2]
    )
    raw = partial / "disk.raw"
    make_disk(raw, tree)
    shutil.copy(tree / f"boot/vmlinuz-{old}", partial / "vmlinuz")
    shutil.copy(tree / f"boot/initrd.img-{old}", partial / "initrd")
    install_grub(partial, raw)
    run(["qemu-img", "convert", "-O", "qcow2", str(raw), str(partial / "disk.qcow2")])
    raw.unlink()
    shutil.rmtree(tree)
    shutil.rmtree(partial / "repo")
    (partial / "image.json").write_text(
        json.dumps({"old": old, "new": new, "other": other, "host_key": host_key}), encoding="utf-8"
    )
    os.rename(partial, folder)


def fetch(repository, new):
    """A repository of files with the newer kernel and its headers, downloaded with this machine's
    own apt."""
    repository.mkdir()
    common = new.partition("-cloud")[0] + "-common"
    run(
        [
            "apt-get",
            "-q",
            "download",
            f"linux-image-{new}",
            f"linux-headers-{new}",
            f"linux-headers-{common}",
        ],
        cwd=repository,
    )
    for package in list(repository.glob("*.deb")):
        repack(package)
    (repository / "Packages").write_text(
        run(["dpkg-scanpackages", "-m", "."], cwd=repository), encoding="utf-8"
    )
    return repository


def repack(package):
    """The same package without compression: unpacking xz takes a minute under emulation."""
    folder = package.with_suffix("")
    run(["dpkg-deb", "--raw-extract", str(package), str(folder)])
    package.unlink()
    run(["dpkg-deb", "--root-owner-group", "-Znone", "--build", str(folder), str(package)])
    shutil.rmtree(folder)


def make_tree(tree, old, repository, partial):
    """The node's files."""
    argv = [
        "unshare",
        "--mount",
        "mmdebstrap",
        "--variant=minbase",
        "--components=main",
        f"--include={PACKAGES},linux-image-{old},linux-headers-{old}",
    ]
    argv += [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "man", "locale")]
    argv += [
        '--essential-hook=echo grub-pc grub-pc/install_devices_empty boolean true | chroot "$1"'
        " debconf-set-selections"
    ]
    files = partial / "files"
    for path, text in FILES.items():
        place = Path(f"{files}{path}")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    (files / "first-boot").chmod(0o755)
    # The initrd is built when the kernel is installed: its contents must exist before that.
    argv += ['--essential-hook=mkdir -p "$1/etc/initramfs-tools" "$1/srv/repo"']
    argv += [f"--essential-hook=sync-in {files}/etc/initramfs-tools /etc/initramfs-tools"]
    argv += [
        f"--customize-hook=sync-in {files} /",
        f"--customize-hook=sync-in {repository} /srv/repo",
    ]
    argv += [
        '--customize-hook=mkdir -m 0700 -p "$1/root/.ssh"',
        f"--customize-hook=copy-in {partial}/key.pub /root/.ssh",
    ]
    argv += ['--customize-hook=mv "$1/root/.ssh/key.pub" "$1/root/.ssh/authorized_keys"']
    argv += [f'--customize-hook=chroot "$1" dkms install {MODULE}/1.0 -k {old}']
    argv += [
        f'--customize-hook=chroot "$1" systemctl -q mask {MASKED}',
        '--customize-hook=chroot "$1" systemctl -q enable systemd-networkd',
    ]
    run([*argv, SUITE, str(tree)])
    run(["chroot", str(tree), "apt-get", "-q", "update"])
    shutil.rmtree(files)


def add_other(tree, partial, other):
    """A kernel that is on the disk but not in /boot, so that update-grub does not find it: image,
    modules, and the initrd that its package would build."""
    apart, modules = tree / "srv/other", f"usr/lib/modules/{other}"
    package = partial / "other"
    package.mkdir()
    run(["apt-get", "-q", "download", f"linux-image-{other}"], cwd=package)
    run(["dpkg-deb", "--extract", *map(str, package.glob("*.deb")), str(package / "files")])
    shutil.move(package / "files/lib/modules" / other, tree / modules)
    for name in ("vmlinuz", "config"):
        shutil.move(package / f"files/boot/{name}-{other}", tree / "boot")
    run(["chroot", str(tree), "depmod", other])
    run(["chroot", str(tree), "mkinitramfs", "-o", f"/boot/initrd.img-{other}", other])
    (apart / "boot").mkdir(parents=True)
    for path in (tree / "boot").glob(f"*-{other}"):
        shutil.move(path, apart / "boot")
    (apart / modules).parent.mkdir(parents=True)
    shutil.move(tree / modules, apart / modules)
    shutil.rmtree(package)


def make_disk(raw, tree):
    """Creates a disk with one partition that holds the tree, without a mount and without a loop
    device."""
    run(["truncate", "-s", f"{DISK_MIB}M", str(raw)])
    run(["sfdisk", "-q", str(raw)], text=f"label: dos\nstart={START_MIB}MiB, type=83, bootable\n")
    run(
        [
            "mke2fs",
            "-q",
            "-t",
            "ext4",
            "-E",
            f"offset={START_MIB * 1024 * 1024}",
            "-d",
            str(tree),
            str(raw),
            f"{DISK_MIB - START_MIB}M",
        ]
    )


def install_grub(partial, raw):
    """Boots the disk once without a boot loader; this boot writes the boot loader."""
    console = partial / "console"
    argv = [
        "qemu-system-x86_64",
        "-accel",
        "tcg",
        "-cpu",
        "max",
        "-m",
        "1024",
        "-nodefaults",
        "-display",
        "none",
        "-no-reboot",
    ]
    argv += [
        "-serial",
        f"file:{console}",
        "-drive",
        f"file={raw},if=virtio,format=raw,cache=unsafe",
    ]
    parameters = "root=/dev/vda1 console=ttyS0 no_timer_check panic=-1 init=/first-boot"
    argv += [
        "-kernel",
        str(partial / "vmlinuz"),
        "-initrd",
        str(partial / "initrd"),
        "-append",
        parameters,
    ]
    run(argv)
    output = console.read_text(encoding="utf-8", errors="replace")
    if "VM-IMAGE-READY" not in output:
        raise ImageError(
            "expected grub-install to end well in the machine, its console's last lines: "
            + " | ".join(output.splitlines()[-5:])
        )


def run(argv, text=None, cwd=None):
    """A command's output. Raises ImageError with its last lines."""
    try:
        done = subprocess.run(
            argv,
            input=text or "",
            capture_output=True,
            text=True,
            errors="replace",
            cwd=cwd,
            timeout=BUILD_DEADLINE_S,
            check=False,
        )
    except FileNotFoundError:
        raise ImageError(
            f"{argv[0]} is not installed; `make test-vm` as root installs what"
            " tests/vm/system-packages.txt lists"
        ) from None
    except subprocess.TimeoutExpired:
        raise ImageError(f"{argv[0]}: no end within {BUILD_DEADLINE_S} s") from None
    if done.returncode:
        last = " | ".join((done.stdout + done.stderr).strip().splitlines()[-4:])
        raise ImageError(f"{argv[0]} ended with code {done.returncode}: {last}")
    return done.stdout
