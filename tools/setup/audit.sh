#!/bin/sh
# `unhang audit` for make, which turns every failure into 2: here 0 means that a run was written, and unhang's own code is printed.
# usage: audit.sh PYTHON [arguments of unhang audit]
python=$1
shift
"$python" -P -m unhang audit "$@"
code=$?
case $code in
    0) printf 'unhang: exit code 0, nothing found\n' >&2; exit 0 ;;
    1) printf 'unhang: exit code 1, there are findings\n' >&2; exit 0 ;;
    *) printf 'unhang: exit code %s, could not look\n' "$code" >&2; exit 2 ;;
esac
