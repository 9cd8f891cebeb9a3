#!/bin/bash -p
# The quick check of unhang: behind these lines is a program of Python. With --marked it ends with 65 for 0 and with 64 for 1, because a Python that is
# broken ends with 1, and an empty file in its place with 0. bash reads a script with one free descriptor (dash ends with 2 below twelve); -p: without BASH_ENV.
as='' proof='' last=''
for word in "$@"; do
    case $word in
    --as=*) as=${word#--as=} ;;
    --require-proof) proof=yes ;;
    *) if [ "$last" = --as ]; then as=$word; fi ;;
    esac
    last=$word
done
python3 -I -S "$0" --marked "$@"
case $? in
65) exit 0 ;;
64) exit 1 ;;
esac
case $as,$proof in
, | kubernetes,*) exit 2 ;;
slurm-healthcheck,yes)
    scontrol update NodeName="${SLURMD_NODENAME:-$(hostname -s)}" State=DRAIN Reason="unhang: the quick check could not be made"
    exit 0
    ;;
*,yes) exit 2 ;;
esac
exit 0
