#!/bin/sh
# Writes requirements files anew: the same versions, each with the checksums of all its files in the index that pip uses here. uv needs no network but that index.
# usage: UV=uv requirements.sh FILE...    The comments on top of a file and the files that it includes stay.
set -eu
for file; do
    new=$(mktemp)
    pins=$(mktemp)
    grep -E '^(#|-r )' "$file" >"$new" || true
    sed -nE '/^[A-Za-z]/{s/ *\\$//;p;}' "$file" >"$pins"
    "$UV" pip compile --quiet --universal --python-version 3.11 --no-deps --generate-hashes --no-annotate --no-header "$pins" >>"$new"
    cat "$new" >"$file"
    rm "$new" "$pins"
done
