#!/bin/sh
# `unhang audit` for make, which turns every failure into 2: here 0 means that a run was written and judged, and both codes are printed.
# usage: audit.sh PYTHON [arguments of unhang audit]
python=$1
shift
runs='' previous=''
for argument in "$@"; do
    case $argument in --out=*) runs=${argument#--out=} ;; esac
    [ "$previous" = --out ] && runs=$argument
    previous=$argument
done
[ -n "$runs" ] || runs=$("$python" -P -c 'from unhang.core.run.run_folder import runs_folder; print(runs_folder())') || exit 2
before=$(readlink "$runs/latest")
"$python" -P -m unhang audit "$@"
code=$?
case $code in
    0) meaning='nothing found at or above --fail-on' ;;
    1) meaning='there are findings' ;;
    *) meaning='the audit failed' ;;
esac
make=0
if [ "$code" -gt 1 ]; then
    # A run in which no node could be read is a run all the same, with its findings.
    [ "$(readlink "$runs/latest")" != "$before" ] && [ -f "$runs/latest/findings.json" ] || make=2
fi
printf 'unhang: exit code %s of unhang audit (make: %s), %s\n' "$code" "$make" "$meaning" >&2
exit "$make"
