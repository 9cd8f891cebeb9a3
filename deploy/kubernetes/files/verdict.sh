#!/bin/sh
# The plugin of node-problem-detector: 0 the node is good, 1 a finding, 2 unknown, which changes no condition to a problem. It needs a shell, date and no Python.
answer=${VERDICT:-/verdict}/answer
{ read -r at && read -r code && read -r line; } 2>/dev/null <"$answer" || { echo "not checked: no verdict yet"; exit 2; }
case $at in
"" | *[!0-9]* | 0?* | ????????????*) # no number of seconds: a shell would work it out
    echo "not checked: no verdict yet"
    exit 2
    ;;
esac
age=$(($(date +%s) - at))
if [ "$age" -lt -60 ]; then
    echo "not checked: the time of the last verdict is in the future"
    exit 2
fi
if [ "$age" -gt 600 ]; then
    echo "not checked: the last verdict is older than ten minutes"
    exit 2
fi
printf '%s\n' "$line"
case $code in
0 | 1) exit "$code" ;;
esac
exit 2
