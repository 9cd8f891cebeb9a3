#!/bin/sh
# `unhang audit` for make, which turns every failure into 2: here 0 means that a run was written and judged, and unhang's own code is printed.
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
printf 'unhang: exit code %s, %s\n' "$code" "$meaning" >&2
if [ "$code" -le 1 ]; then
    exit 0
fi
# A run in which no node could be read is a run all the same, with its findings.
[ "$(readlink "$runs/latest")" != "$before" ] && [ -f "$runs/latest/findings.json" ] && exit 0
exit 2
