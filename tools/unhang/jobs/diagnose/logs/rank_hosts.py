"""The host of each rank and of each line, as names of files, prompts, headings and the beginnings
of lines have it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import PurePath

from unhang.core.verdict.screen import host_name
from unhang.jobs.diagnose.logs.last_words import RankLine

_RANK = re.compile(r"[._-]*(?:rank|pid)[._-]?\d+[._-]*")
_KIND_OF_LOG = re.compile(
    r"(?i)(?:^|[._-])(?:dmesg|kern(?:el)?|journal(?:ctl)?|messages|syslog|node)(?=[._-]|$)"
)
# a prompt and what it asks; a container's number is no machine, and # begins comments too
_PROMPT = re.compile(
    r"(?:\[?[a-z_][\w.-]{0,31}@(?:[0-9a-f]{12}|([A-Za-z][A-Za-z0-9-]{0,62}))[ :][^\s#$]{1,60}[#$]"
    r"|(\$|#(?= .*\b(?:ssh|pdsh|clush) ))) (.*)"
)
# of kubectl describe: a node, or a pod
_DESCRIBED = re.compile(r"Name: +(?:(\S+)\nRoles:|\S+\nNamespace:)")
# what runs a command elsewhere, also in a loop: on the host that it names, or on hosts that its
# output names, above their lines or before each
_ELSEWHERE = re.compile(
    r"(?:^|[;&|] {0,3}|\bdo )(?:sudo )?(?:ssh (?:-\w+ )*(?:\w+@)?([A-Za-z][\w.-]*) (?!.*\bssh )\S"
    r"|(pdsh|clush|ssh|ansible)\b|(?:srun|kubectl|docker|podman|apptainer|scontrol)\b)"
)
_LABELLED = re.compile(r"([A-Za-z][\w.-]{0,60}\d): (?!\[?[Rr]ank)")  # else of a rank
_HEADING = re.compile(
    r"([-=#*>]{2,20} ?)?(([A-Za-z][\w-]{0,60}?)(0?)\d{1,9})(?(1)(: \S.{0,200})?)"
    r"(?::|(?: ?[-=#*<]{2,20}))?\s*"
)
_NUMBERED = re.compile(r"[A-Za-z][\w-]{0,60}\d[\w-]{0,20}")
# zeros before a number are of a machine, not of a run or a GPU, or of how many there were
MACHINE = re.compile(r"(?i)(?:gpu|node|host|dgx|hgx)[a-z-]*0\d\d+")
_RANK_IN_LINES = re.compile(rb"\b[Rr]ank ?(\d+)")
_LABEL = re.compile(r"(?:^|\s)([A-Za-z][A-Za-z.-]{0,40}\d[\w.-]{0,40}):\s{1,3}\[?[Rr]ank")


def hosts_in_names(files: Mapping[str, int | None]) -> dict[int, str]:
    """What is beside the rank in the names of files, or in those of their folders, if it is
    numbered as hosts are: node-a of node-a-rank1.log, gpu12 of gpu12/rank13.log. Where a rank has
    two files, they are named for something else. files: name -> rank."""
    ranked = {PurePath(file): rank for file, rank in files.items() if rank is not None}
    for words in (
        [_RANK.sub("_", path.stem).strip("_") for path in ranked],  # of parts no name is made
        [path.parent.name for path in ranked],
    ):
        found = dict(zip(ranked.values(), map(host_name, words), strict=True))
        alike = {re.sub(r"\d+|[a-z]$", "", word) for word in words}
        is_whole = len(found) == len(ranked) and all([*alike, *found.values()])
        if is_whole and len(alike) == 1 < len({*found.values()}):
            return found
    return {}


def host_of_file(file: str, hosts: Collection[str], text: bytes) -> str | None:
    """gpu12 of gpu12-dmesg.txt or gpu12/job.log, if it is one of the hosts that other lines name,
    the file says itself where it was written, or has one rank at most and the name of a machine."""
    path = PurePath(file)
    for word in (path.stem, path.parent.name):
        name = _KIND_OF_LOG.sub("", word).strip("._-")
        if _NUMBERED.fullmatch(name) and not _RANK.search(name):
            says = rb"(?:\bon |\bhost(?:name)?[ =:\n]{1,3})" + re.escape(name).encode() + rb"\b"
            if (
                name in {host.partition(".")[0] for host in hosts}
                or re.search(says, text)
                or (MACHINE.fullmatch(name) and len({*_RANK_IN_LINES.findall(text)}) < 2)
            ):
                return name
    return None


def hosts_of_lines(lines: Sequence[str], file: str = "") -> Iterator[tuple[str, str]]:
    """(host, the line without its label) for each line: the host that pdsh and clush print before
    it, else that of the heading above, else that of the prompt above or of what it asks; "" where
    nothing says so. A heading that no prompt asked for names a host if the file's name has it too,
    or if a prompt follows and zeros are before its number."""
    labels = [*map(_LABELLED.match, lines)]
    is_labelled = sum(map(bool, labels)) * 3 > len(lines) * 2
    host, stem, asked, above = "", "", None, ""
    in_name = PurePath(file).name.replace("_", " ")
    for label, line, below in zip(labels, lines, [*lines[1:], ""], strict=True):
        if prompt := _PROMPT.match(line):
            asks = _ELSEWHERE.search(prompt[3])
            if asks or asked or not prompt[2]:  # else below the heading of its host
                asked, host, stem = asks, (asks or prompt)[1] or "", ""
        elif described := _DESCRIBED.match(f"{line}\n{below}"):
            host = described[1] or ""
        elif heading := _HEADING.fullmatch(line):
            marks, name, own, zero, command = heading.groups()
            if above and {*above} == {"-"}:  # as clush -b and dshbak print it
                host = name
            elif not asked and marks:
                if (zero and below[:2] == "$ ") or re.search(rf"\b{name}\b", in_name):
                    host = name
                elif not command:
                    host = ""
            elif asked and asked[2] and (name in asked.string or (marks and stem in ("", own))):
                host, stem = name, own
        above = line.strip()
        yield (label[1], line[label.end() :]) if label and is_labelled else (host, line)


def hosts_in_words(words: Mapping[int, RankLine]) -> dict[int, str]:
    """gpu12 of `gpu12: [rank13]: loss 2.1`, as a launcher labels the lines of its hosts."""
    return {rank: found[1] for rank, said in words.items() if (found := _LABEL.search(said.head))}
