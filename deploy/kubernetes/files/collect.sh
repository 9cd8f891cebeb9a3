#!/bin/sh
# Reads the node once, prints the document, and sleeps. The node's root is at $HOST_ROOT, the collector in $PROGRAMS; $WORK is the same folder as /media in that root.
set -eu
umask 077
host=${HOST_ROOT:-/host} work=${WORK:-/work}
cp "${PROGRAMS:-/opt/unhang}/unhang-collect.pyz" "$work/"
set -- --procfs /proc # so that the mount table is that of process 1, and not this container's, in which everything is read-only

# A driver in a container: NVML lies in its root. The link alone is in the path, because the C library beside it does not fit the node's Python.
rm -f "$work/libnvidia-ml.so.1"
for folder in usr/lib/x86_64-linux-gnu usr/lib/aarch64-linux-gnu usr/lib64; do
    library=/run/nvidia/driver/$folder/libnvidia-ml.so.1
    [ ! -e "$host$library" ] || ln -sf "$library" "$work/libnvidia-ml.so.1"
done

# The kernel's own log needs a privileged container. A file of it does, if it was written since the boot.
if [ -z "${KERNEL_LOG:-}" ]; then
    for log in /var/log/messages /var/log/kern.log; do
        [ -s "$host$log" ] || continue
        silent_s=$(($(date +%s) - $(stat -c %Y "$host$log")))
        [ "$silent_s" -ge "$(cut -d. -f1 /proc/uptime)" ] || KERNEL_LOG=$log
    done
fi
[ "${KERNEL_LOG:-kmsg}" = kmsg ] || set -- "$@" --kernel-log "$KERNEL_LOG"

chroot "$host" /usr/bin/env -i PATH=/usr/local/bin:/usr/bin:/bin LD_LIBRARY_PATH=/media python3 -I -S /media/unhang-collect.pyz "$@" >"$work/node.json.new"
mv "$work/node.json.new" "$work/node.json"
cat "$work/node.json"
if [ -n "${RESULTS:-}" ]; then # a volume that is full or away ends no reading
    { cp "$work/node.json" "$RESULTS/.$NODE_NAME.new" && mv "$RESULTS/.$NODE_NAME.new" "$RESULTS/$NODE_NAME.json"; } || echo "$NODE_NAME: its document is not in the volume" >&2
fi
sleep "${EVERY_S:-3600}"
