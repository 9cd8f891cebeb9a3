#!/bin/sh
# Makes the virtual environment and installs one requirements file into it, with torch for requirements-dev.txt; a set-up that was interrupted starts over.
# usage: PYTHON3=python3 venv.sh VENV STAMP REQUIREMENTS
set -eu
venv=$1 stamp=$2 requirements=$3
root=$(cd "$(dirname "$0")/../.." && pwd)
unset PYTHONPATH # the child in which pip builds this project would import from it

say() { printf 'unhang: %s\n' "$*" >&2; exit 2; }

if ! command -v "$PYTHON3" >/dev/null 2>&1; then
    say "python3 is not on PATH; install it: apt-get install python3 python3-venv"
fi
version=$("$PYTHON3" -I -c 'import sys; print("%d.%d" % sys.version_info[:2])')
if ! "$PYTHON3" -I -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    say "the controller needs Python 3.11 or newer, and $(command -v "$PYTHON3") is $version; install a newer one and say: make PYTHON3=python3.12"
fi
# An environment whose interpreter is gone, or that never got its pip, is made again.
if ! "$venv/bin/python" -I -m pip --version >/dev/null 2>&1; then
    if ! "$PYTHON3" -I -c 'import venv, ensurepip' >/dev/null 2>&1; then
        say "Python $version has no venv module; install it: apt-get install python$version-venv"
    fi
    rm -rf "$venv"
    printf 'unhang: making %s with Python %s\n' "$venv" "$version" >&2
    "$PYTHON3" -I -m venv "$venv" || say "could not make the virtual environment $venv (above is why); on Debian and Ubuntu try: apt-get install python$version-venv"
fi
printf 'unhang: installing %s into %s\n' "$requirements" "$venv" >&2
log=$venv/setup.log
torch=$root/requirements-torch.txt
case $requirements in *-dev.txt) ;; *) torch=/dev/null ;; esac
install() { PIP_DISABLE_PIP_VERSION_CHECK=1 "$venv/bin/python" -I -m pip install --quiet "$@" >>"$log" 2>&1; }
: >"$log"
if ! install --require-hashes -r "$root/$requirements" -r "$root/requirements-build.txt" || ! install -r "$torch" ||
   ! install --no-deps --no-build-isolation --editable "$root"; then
    if grep -q 'externally-managed-environment' "$log"; then
        say "pip refused (PEP 668): $venv is no virtual environment of its own; remove it and install python$version-venv: apt-get install python$version-venv"
    fi
    say "pip could not install $requirements: $(grep -i '^ERROR' "$log" | tail -n 1); the whole of it is in $log"
fi
# A module's nvidia-ml-py travels with it from this link, so that plain ansible-playbook finds it as well.
"$venv/bin/python" -I -c 'from unhang.core.ansible.packed_pynvml import link_pynvml; from unhang.core.project import find_project; link_pynvml(find_project())' || say "could not link pynvml.py into .cache/module_utils (above is why)"
# Python 3.11 puts setuptools (10 MB) into each environment; nothing needs it but tests that have torch build an extension, and these say so.
grep -q '^setuptools==' "$root/$requirements" || "$venv/bin/python" -I -m pip uninstall --quiet --yes setuptools >>"$log" 2>&1 || true
: >"$stamp"
