#!/bin/sh
# Judges the collector's last document once a minute. The answer: the time in seconds, the exit code of the quick check, its line.
set -eu
umask 022
work=${WORK:-/work} verdict=${VERDICT:-/verdict}
while :; do
    code=0
    if [ -z "$(find "$work" -maxdepth 1 -name node.json -mmin "-${OLDEST_MIN:-150}")" ]; then
        code=2 line="not checked: the collector sent no document in ${OLDEST_MIN:-150} minutes"
    else
        line=$("${PROGRAMS:-/opt/unhang}/unhang-quick.pyz" --facts "$work/node.json" --as kubernetes) || code=$?
    fi
    printf '%s\n%s\n%s\n' "$(date +%s)" "$code" "$line" >"$verdict/new"
    mv "$verdict/new" "$verdict/answer"
    sleep "${JUDGE_S:-60}"
done
