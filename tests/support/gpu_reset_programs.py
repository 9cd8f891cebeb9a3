"""A stand-in for `nvidia-smi --gpu-reset` on a test node: it resets what the fake NVML answers, and
refuses while a process holds a GPU, as the real one does."""

from __future__ import annotations

from gpu_daemons import DEVICE, ORDER

KERNEL_LOG = "/srv/kernel.log"
PROFILE = "/etc/unhang-fake-nvml.profile"
# A reset ends the recovery action and makes the pending row remaps; field numbers of NVML.
NVIDIA_SMI = f"""\
#!/bin/sh
echo "nvidia-smi $*" >>{ORDER}
for holder in /proc/[0-9]*/fd/*; do
    case $(readlink "$holder") in {DEVICE}) echo "GPU is in use by another client"; exit 255;; esac
done
[ ! -e /srv/reset-fails ] || {{ echo "GPU reset failed"; exit 255; }}
case "$*" in
"-r") gpus=$(seq 0 7);;
"--gpu-reset -i "*) gpus=$(for uuid in $(echo "$3" | tr , ' '); do
    sed -n "s/^\\([0-9]*\\) nvmlDeviceGetUUID 0 $uuid\\$/\\1/p" {PROFILE}; done);;
*) exit 2;;
esac
[ -n "$gpus" ] || {{ echo "No devices were found"; exit 6; }}
cp {PROFILE} {PROFILE}.new
[ -e /srv/reset-changes-nothing ] || for gpu in $gpus; do
    sed -i -E "s/^($gpu field:(230|144) 0 3) .*/\\1 0/" {PROFILE}.new
done
mv {PROFILE}.new {PROFILE}
"""


def plant(fleet, name, *lines):
    """nvidia-smi, and a kernel log with these lines, until the test ends."""
    fleet.plant(name, "/usr/local/sbin/nvidia-smi", NVIDIA_SMI, 0o755)
    fleet.plant(name, KERNEL_LOG, "[    0.000000] Linux version 6.1\n")
    fleet.undo.callback(fleet.shell, name, "rm -f /var/lib/unhang/gpu_resets.json /srv/reset-*")
    fleet.shell(name, "rm -f /var/lib/unhang/gpu_resets.json")
    for line in lines:
        log(fleet, name, line)


def log(fleet, name, line, stamp_s=10.0):
    """One more line of the kernel log, stamp_s after the boot."""
    fleet.shell(name, f"printf '[%12.6f] %s\\n' {stamp_s} '{line}' >>{KERNEL_LOG}")
