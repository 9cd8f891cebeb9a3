"""A test node whose driver comes from packages: small stand-ins with the layout of Debian's; a boot
loads the module version that dpkg has installed."""

from __future__ import annotations

import dataclasses

import hardware
from fakes.node_tree import elf_file
from repository import APT, build_package, serve

OLD, NEW = "535.261.03", "535.309.01"
KERNEL = "6.1.0-50-amd64"
MODULES = f"/lib/modules/{KERNEL}"
LIBRARY = "/srv/driver/libnvidia-ml.so"
GRUB = (
    f"menuentry 'Debian' --id one {{\n  linux /boot/vmlinuz-{KERNEL} root=/dev/sda1 ro\n  initrd"
    f" /boot/initrd.img-{KERNEL}\n}}\n"
)
# Simulates a boot: the module that dpkg installed last becomes the loaded one.
LOAD = """\
#!/bin/sh
version=$(dpkg-query -W -f '${Version}' libnvidia-ml1) && version=${version%%-*} || exit 0
for file in /srv/hardware/driver/nvidia/version /srv/hardware/sys/module/nvidia/version /etc/unhang-fake-nvml.profile; do
    sed -i -E "s/535\\.[0-9]+\\.[0-9]+/$version/g" $file
done
"""
LOAD_UNIT = """\
[Unit]
DefaultDependencies=no
Before=testbed-hardware.service
After=local-fs.target
[Service]
Type=oneshot
ExecStart=/usr/local/sbin/testbed-driver
[Install]
WantedBy=sysinit.target
"""
# Kernels of a container are not read, because it boots none, and an overlay counts as an image.
# This layer makes the node look like a machine with a disk.
MACHINE = {
    "/srv/machine/run/systemd/container": "",
    "/srv/machine/proc/self/mountinfo": "20 1 8:1 / / rw - ext4 /dev/sda1 rw\n",
}
AS_MACHINE = {"unhang_rootfs": ["/srv/machine", "/"]}
SOURCE = "Source: nvidia-graphics-drivers\n"


def packages(folder, version, revision="1"):
    """The packages of a driver, as files."""
    full, libraries = f"{version}-{revision}", hardware.LIBRARIES
    files = [f"{libraries}/{name}.{version}" for name in ("libnvidia-ml.so", "libcuda.so")]
    links = [
        f"{libraries}/{name}.1 -> {name}.{version}" for name in ("libnvidia-ml.so", "libcuda.so")
    ]
    fill = "".join(f"cp {LIBRARY} {path}\n" for path in files)
    dkms = (
        f"if [ -d {MODULES}/build ]; then mkdir -p {MODULES}/updates/dkms; cp"
        f" /srv/driver/nvidia-{version}.ko {MODULES}/updates/dkms/nvidia-current.ko; fi"
    )
    library = build_package(folder, "libnvidia-ml1", full, [*files, *links], SOURCE, postinst=fill)
    module = build_package(
        folder,
        "nvidia-kernel-dkms",
        full,
        [f"/usr/src/nvidia-current-{version}/dkms.conf"],
        SOURCE,
        postinst=dkms,
    )
    needs = f"Depends: libnvidia-ml1 (= {full}), nvidia-kernel-dkms (= {full})\n"
    return [
        library,
        module,
        build_package(folder, "nvidia-driver", full, ["/usr/share/nvidia/driver"], SOURCE + needs),
    ]


def prepare(fleet, name, folder, versions=(OLD, NEW), more=(), headers=True, gpus=None):
    """A node with one kernel and the first of `versions` installed and loaded; its repository has
    all of them, and `more` (files of packages)."""
    machine = gpus or dataclasses.replace(
        hardware.H200X8, driver=versions[0], kernel=KERNEL, flavour_line="x86_64 Kernel Module"
    )
    fleet.undo.callback(restore, fleet, name)
    fleet.equip(name, machine)
    fleet.shell(
        name, f"rm -f {hardware.LIBRARIES}/libnvidia-ml.so.* {hardware.LIBRARIES}/libcuda.so.*"
    )
    with open(fleet.library, "rb") as source:
        fleet.plant(name, LIBRARY, source.read())
    for version in versions:
        fleet.plant(
            name,
            f"/srv/driver/nvidia-{version}.ko",
            elf_file({".modinfo": f"version={version}\0license=NVIDIA\0".encode()}),
        )
    fleet.plant(name, f"{MODULES}/modules.dep", "updates/dkms/nvidia-current.ko:\n")
    fleet.plant(name, f"/boot/vmlinuz-{KERNEL}", "")
    fleet.plant(name, "/boot/grub/grub.cfg", GRUB)
    for path, content in MACHINE.items():
        fleet.plant(name, path, content)
    fleet.plant(
        name,
        "/etc/modprobe.d/nvidia.conf",
        "install nvidia modprobe -i nvidia-current $CMDLINE_OPTS\n",
    )
    fleet.shell(name, f"mkdir -p {MODULES}/build")
    serve(
        fleet, name, [*[file for version in versions for file in packages(folder, version)], *more]
    )
    fleet.shell(
        name,
        f"{APT} install "
        + " ".join(
            f"{package}={versions[0]}-1"
            for package in ("nvidia-driver", "nvidia-kernel-dkms", "libnvidia-ml1")
        ),
    )
    if not headers:
        fleet.shell(name, f"rmdir {MODULES}/build")
    fleet.plant(name, "/usr/local/sbin/testbed-driver", LOAD, 0o755)
    fleet.plant(name, "/etc/systemd/system/testbed-driver.service", LOAD_UNIT)
    fleet.shell(
        name,
        "systemctl -q enable testbed-driver.service",
        undo="systemctl -q disable testbed-driver.service",
    )


def restore(fleet, name):
    """Removes what remains when everything else was undone."""
    fleet.shell(
        name,
        f"rm -rf /lib/modules/{KERNEL} /boot/grub /srv/driver /etc/apt/preferences.d/unhang-driver"
        " /etc/apt/preferences.d/unhang-package-hold",
    )
    fleet.shell(name, "rm -f /etc/apt/apt.conf.d/52unhang-package-hold /dev/nvidia0")
    hardware.install_library(fleet.nodes[name], hardware.CAPTURED_DRIVER, fleet.library)
