"""Finds the settings in a file, each with its line, by the kind of file. Text in, values out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from dataclasses import dataclass
from pathlib import PurePath

import yaml

from unhang.jobs.lint.yaml_nodes import fields_of, nodes_of, read_yaml
from unhang_node.facts.parse.nccl_conf import parse_nccl_conf
from unhang_node.facts.parse.systemd_env import parse_unit

KINDS = ("shell", "slurm", "docker", "kubernetes", "systemd", "nccl_conf", "python")
LONGEST_LINE = 20_000
_INTERESTING = re.compile(r"(?i)nccl")
_OTHERS = frozenset({"TORCH_DISTRIBUTED_DEBUG", "CUDA_LAUNCH_BLOCKING", "RDMAV_FORK_SAFE"})
_MISSPELT = re.compile(r"(?:NCC|NCL|NCLL|NCCCL|NNCL|NCLC|CNCL)_(?=[A-Z])")
_PREFIXES = ("TORCH_FR_", "TORCH_NCCL_", "NCCL_", "ENABLE_NCCL_")
_ASSIGNMENT = re.compile(
    r"""(?P<before>export\s{1,8}|declare\s{1,8}-x\s{1,8}|-x\s{1,8}|-e\s{1,8}|-genv\s{1,8}|--env[= ]|"""  # noqa: E501
    r"""ENV\s{1,8}|env\s{1,8}|set\s{1,8}|Environment=)?"""
    r"""(?<![\w$./{-])["']?(?P<name>[A-Za-z_]\w{2,100})=(?P<value>"(?:[^"\\]|\\.){0,2000}"|'[^']{0,2000}'|(?:\$\{[^}]{0,200}\}|\$\([^)]{0,200}\)|[^\s;&|"'`)\]]){0,2000})"""
)
# before a text that a script only shows
_PRINTS = re.compile(r"(?:^|[;&|]|\b(?:then|do|else))\s{0,40}(?:echo|printf)\s[^;&|]{0,2000}$")
# outside of quotes
_INTO_FILE = re.compile(r"""^(?:[^>"']|"[^"]{0,2000}"|'[^']{0,2000}')*>{1,2}\s{0,8}[^\s&>]""")
_EXPORT = re.compile(r"--export[= ]\S{1,2000}")
_UNSET = re.compile(r"(?<!\w)unset\s{1,8}(?P<names>[\w ]{1,400})")
_COMMENT = re.compile(r"(?:^|\s)#(?!SBATCH|PBS|BSUB|!).*$")
_DEFAULTED = re.compile(r"\$\{\w{1,100}:?[-=](?P<value>[^}$]{0,200})\}")
_ENV_OLD = re.compile(
    r"^\s{0,40}ENV\s{1,8}(?P<name>[A-Za-z_]\w{0,100})\s{1,8}(?P<value>[^=\s][^\n]{0,400})$"
)
_YAML_NAME = re.compile(
    r"""^(?P<indent>\s{0,80})-?\s{0,8}(?:\{\s{0,4})?name:\s{0,8}["']?(?P<name>[A-Za-z_]\w{2,100})["']?\s{0,8}(?:,\s{0,8}value:\s{0,8}(?P<value>"[^"]{0,400}"|'[^']{0,400}'|[^,}\s]{1,400}))?"""
)
_YAML_VALUE = re.compile(
    r"""^\s{0,80}value:\s{0,8}(?P<value>"[^"]{0,400}"|'[^']{0,400}'|[^\s#][^#\n]{0,400}?)\s{0,80}(?:#.*)?$"""
)
_YAML_KEY = re.compile(r"(?:TORCH_|ENABLE_)?NCCL_\w{2,100}|TORCH_FR_\w{2,80}")
_YAML_MAP = re.compile(
    rf"""^\s{{0,80}}["']?(?P<name>{_YAML_KEY.pattern})["']?:\s{{1,40}}(?P<value>"[^"]{{0,400}}"|'[^']{{0,400}}'|[^\s#{{\[][^#\n]{{0,400}}?)\s{{0,80}}(?:#.*)?$"""
)
_PYTHON = re.compile(
    r"""(?:os\.(?:environ(?:\[|\.setdefault\(|\.update\(\{)|putenv\()|\b\w{0,40}env\w{0,20}\[)\s{0,4}["'](?P<name>\w{2,100})["']\s{0,4}(?:\]\s{0,4}=(?!=)|,|:)\s{0,4}(?:str\()?["']?(?P<value>[^"'\n)}]{0,400})"""
)
_PYTHON_PAIR = re.compile(
    r"""["'](?P<name>(?:TORCH_)?NCCL_[A-Z0-9_]{2,100})["']\s{0,4}:\s{0,4}(?:["'](?P<text>[^"'\s]{1,400})["']|(?P<number>\d{1,20})\b)"""
)
_NULLS = ("", "~", "null", "Null", "NULL")
_USED = re.compile(r"\$\{?(\w{3,100})")
_EXPORTED = re.compile(r"(?<!\w)export(?:\s{1,8}-\w)?\s{1,8}(?P<names>[\w ]{1,400})(?![\w=])")
_TEST_OF_NCCL = re.compile(
    r"\b(?:all_?reduce|all_?gather|all_?to_?all|reduce_scatter|sendrecv|broadcast|reduce|gather|scatter|hypercube)_perf"
)
_TESTS = re.compile(r"\b[nr]ccl-tests\b")
_FRAMEWORK = re.compile(
    r"(?i)\b(?:torch\w*|pytorch|deepspeed|accelerate|vllm|sglang|megatron|nemo|jax|tensorflow|horovod)\b"
)
_LONGEST_COMMAND = 80
_ALONE = re.compile(
    r"""^[ \t]{0,40}(?P<name>[A-Z]\w{2,100})=(?:"[^"$`]{0,400}"|'[^']{0,400}'|[\w.,:=^/-]{1,400})[ \t]{0,40}(?:#.*)?$"""  # noqa: E501
)
_EXPORTS_ALL = re.compile(r"^[ \t]{0,40}set (?:-a|-\w{0,4}a\w{0,4}|-o allexport)\b")
_HERE_DOCUMENT = re.compile(r"<<-?\s{0,4}['\"\\]?(?P<end>\w{1,40})")
IGNORED = re.compile(r"#\s{0,4}unhang:\s{0,4}ignore\b")


@dataclass(frozen=True)
class Setting:
    """NAME=value at a line. value None: unset, or computed and unknown. lasting: it applies to more
    than one command. odd: why the file's syntax makes it invalid. own: a variable of the script
    itself, which uses it as $NAME and does not export it. local: the script neither exports nor
    uses it."""

    name: str
    value: str | None
    line: int
    lasting: bool = True
    odd: str | None = None
    unset: bool = False
    own: bool = False
    local: bool = False


def kind_of(name: str, text: str) -> str:
    """The kind of a file, by its name and its first lines."""
    path = PurePath(name)
    base, suffix = path.name.lower(), path.suffix.lower()
    head = text[:4000]
    if (
        base.startswith(("dockerfile", "containerfile"))
        or suffix == ".dockerfile"
        or re.search(r"(?m)^FROM\s+\S+", head)
    ):
        return "docker"
    if suffix in (".yaml", ".yml"):
        return "kubernetes"
    if base.endswith("nccl.conf") or base == ".nccl.conf":
        return "nccl_conf"
    if suffix in (".service", ".socket", ".slice") or re.search(
        r"(?m)^\[(?:Service|Unit|Manager)\]\s*$", head
    ):
        return "systemd"
    if suffix == ".py" or re.search(r"^#!.*python", head):
        return "python"
    if re.search(r"(?m)^#SBATCH\b", text[:20000]) or suffix in (".sbatch", ".slurm"):
        return "slurm"
    if re.search(r"(?m)^(?:apiVersion|kind|services):\s", head):
        return "kubernetes"
    return "shell"


def find_settings(text: str, kind: str) -> list[Setting]:
    """The settings of NCCL and of torch's NCCL backend in a file of this kind, in its order."""
    if kind == "nccl_conf":
        return list(_conf(text))
    lines = [line[:LONGEST_LINE] for line in text.splitlines()]
    found: list[Setting] = []
    if kind == "kubernetes":
        found += _yaml(text, lines)
    if kind == "python":
        found += _python(lines)
    elif kind == "systemd":
        found += _unit(text)
    else:
        found += _shell(lines, kind)
    ignored = {number for number, line in enumerate(lines, 1) if IGNORED.search(line)}
    return sorted(
        dict.fromkeys(one for one in found if one.line not in ignored), key=lambda one: one.line
    )


def wanted(name: str) -> bool:
    """Whether lint checks this variable."""
    if name.startswith(_PREFIXES) or name in _OTHERS or _MISSPELT.match(name):
        return True
    return _INTERESTING.match(name) is not None and name.upper().startswith("NCCL_")


def runs_only_tests(text: str) -> bool:
    """Whether a file runs NCCL's tests and names no framework."""
    return (_TEST_OF_NCCL.search(text) or _TESTS.search(text)) is not None and _FRAMEWORK.search(
        text
    ) is None


def meant_name(name: str) -> str:
    """The name with NCCL's prefix corrected if its letters are swapped, missing or doubled; else
    the name itself."""
    return _MISSPELT.sub("NCCL_", name, count=1)


def _shell(lines: list[str], kind: str) -> Iterator[Setting]:
    used = {name for line in lines for name in _USED.findall(line)}
    alone = _alone(lines, used) if kind in ("shell", "slurm") else frozenset()
    only_tests = (
        runs_only_tests(text := "\n".join(lines)) and _TEST_OF_NCCL.search(text) is not None
    )
    used -= {
        name
        for line in lines
        for found in _EXPORTED.finditer(line)
        for name in found["names"].split()
    }
    for number, raw in enumerate(lines, 1):
        # Slurm splits the value of --export at commas.
        line = _EXPORT.sub(
            lambda listed: listed.group().replace(",", " --env="), _without_comment(raw)
        )
        if kind == "docker" and (old := _ENV_OLD.match(line)) and wanted(old["name"]):
            yield Setting(old["name"], _plain(old["value"]), number)
            continue
        for found in _ASSIGNMENT.finditer(line):
            if not wanted(found["name"]) or (
                _PRINTS.search(line[: found.start()]) and not _INTO_FILE.match(line)
            ):
                continue
            lasting = _lasts(line, found) and not _given_to_test(found, lines, number, only_tests)
            own = lasting and not found["before"] and found["name"] in used
            yield Setting(
                found["name"],
                _plain(found["value"]),
                number,
                lasting,
                own=own,
                local=number in alone,
            )
        for gone in _UNSET.finditer(line):
            yield from (
                Setting(name, None, number, unset=True)
                for name in gone["names"].split()
                if wanted(name)
            )


def _without_comment(line: str) -> str:
    return (
        line if line.lstrip().startswith(("#SBATCH", "#PBS", "#BSUB")) else _COMMENT.sub("", line)
    )


def _alone(lines: list[str], used: Set[str]) -> frozenset[int]:
    """Lines that consist of one assignment, in a script that is run and not sourced: programs that
    the script starts do not get the variable. Empty if the script exports all. used: names that the
    script uses or exports elsewhere."""
    if (
        not lines
        or not (lines[0].startswith("#!") or any(line.startswith("#SBATCH") for line in lines))
        or any(map(_EXPORTS_ALL.search, lines))
    ):
        return frozenset()
    found, ends, continued = set(), "", False
    for number, line in enumerate(lines, 1):
        if ends:
            ends = "" if line.strip() == ends else ends
            continue
        one = _ALONE.match(line)
        if (
            one
            and not continued
            and one["name"] not in used
            and not any(one["name"] in row for row in lines if row.lstrip().startswith("export "))
        ):
            found.add(number)
        continued = line.rstrip().endswith("\\")
        if here := _HERE_DOCUMENT.search(line):
            ends = here["end"]
    return frozenset(found)


def _given_to_test(found: re.Match[str], lines: list[str], number: int, only_tests: bool) -> bool:
    """Whether mpirun passes the setting (-x, -genv) to one of NCCL's tests, so that it ends with an
    experiment: in this line or its continuation. only_tests: the file runs nothing else, and may
    have the test's name in a variable."""
    if (found["before"] or "").split()[:1] not in (["-x"], ["-genv"]):
        return False
    if only_tests:
        return True
    for line in lines[number - 1 : number + _LONGEST_COMMAND]:
        if _TEST_OF_NCCL.search(line):
            return True
        if not line.rstrip().endswith("\\"):
            return False
    return False


def _lasts(line: str, found: re.Match[str]) -> bool:
    """Whether the assignment lasts: exported, on a line of its own, or passed to a container or all
    ranks; not the prefix of one command."""
    if found["before"]:
        return found["before"].split()[0] != "env"
    rest = line[found.end() :].strip()
    while rest and (more := _ASSIGNMENT.match(rest)):
        rest = rest[more.end() :].strip()
    return not rest or rest[0] in ";&|#\\\"'"


def _plain(value: str) -> str | None:
    """The value without quotes; for ${X:-1} its default; None if it is computed."""
    bare = value.strip()
    if len(bare) > 1 and bare[0] == bare[-1] and bare[0] in "\"'":
        bare = bare[1:-1]
    if defaulted := _DEFAULTED.fullmatch(bare):
        return defaulted["value"]
    return None if "$" in bare or "`" in bare or "{{" in bare else bare


def _yaml(text: str, lines: list[str]) -> Iterator[Setting]:
    """What YAML itself reads, and what its lines show in templates and in texts of other files
    inside."""
    read = {(one.name, one.line): one for one in _yaml_nodes(text)}
    yield from read.values()
    yield from (one for one in _yaml_lines(lines) if (one.name, one.line) not in read)


def _yaml_nodes(text: str) -> Iterator[Setting]:
    """Maps of names, and maps with the fields name and value, in any style."""
    for node in nodes_of(read_yaml(text).documents):
        fields = fields_of(node)
        name = fields.get("name")
        if (
            isinstance(name, yaml.ScalarNode)
            and wanted(name.value)
            and fields.keys() & {"value", "valueFrom"}
        ):
            yield Setting(name.value, _of_node(fields.get("value")), name.start_mark.line + 1)
        for key, value in node.value if fields else ():
            if (
                isinstance(value, yaml.ScalarNode)
                and _YAML_KEY.fullmatch(str(key.value))
                and wanted(key.value)
            ):
                yield Setting(key.value, _of_node(value), key.start_mark.line + 1)


def _of_node(node: yaml.Node | None) -> str | None:
    if not isinstance(node, yaml.ScalarNode):
        return None
    return _plain(f'"{node.value}"') if node.style else _yaml_plain(node.value)


def _yaml_lines(lines: list[str]) -> Iterator[Setting]:
    for number, line in enumerate(lines, 1):
        named = _YAML_NAME.match(line)
        if named and wanted(named["name"]):
            value = named["value"]
            for later in lines[number : number + 3] if value is None else ():
                if found := _YAML_VALUE.match(later):
                    value = found["value"]
                    break
                if _YAML_NAME.match(later):
                    break
            yield Setting(named["name"], _yaml_plain(value), number)
        elif (mapped := _YAML_MAP.match(line)) and wanted(mapped["name"]):
            yield Setting(mapped["name"], _yaml_plain(mapped["value"]), number)


def _yaml_plain(value: str | None) -> str | None:
    """As _plain(); YAML's null is no value."""
    return None if value is None or value.strip() in _NULLS else _plain(value)


def _python(lines: list[str]) -> Iterator[Setting]:
    for number, line in enumerate(lines, 1):
        for found in _PYTHON.finditer(line):
            if wanted(found["name"]):
                yield Setting(found["name"], found["value"].strip(), number)
        for pair in _PYTHON_PAIR.finditer(line):
            yield Setting(pair["name"], pair["text"] or pair["number"], number)


def _unit(text: str) -> Iterator[Setting]:
    for section, key in (("Service", "Environment"), ("Manager", "DefaultEnvironment")):
        rows, _files = parse_unit(text, section, key)
        for row in rows:
            if wanted(row.name):
                yield Setting(
                    row.name,
                    row.value if row.certain else None,
                    row.line or 0,
                    unset=row.value is None,
                )


def _conf(text: str) -> Iterator[Setting]:
    """Settings as NCCL reads them: nothing is trimmed, quotes belong to the value, the first line
    that sets a name wins."""
    for row in parse_nccl_conf(text.encode("utf-8", "surrogateescape")):
        bare = row.name.strip().removeprefix("export ").strip()
        if row.name.startswith("#") or not wanted(bare):
            continue
        value = row.value or ""
        odd = None
        if row.name != bare:
            odd = (
                f"the name has {'the word export' if 'export ' in row.name else 'blanks'} in it:"
                f" NCCL sets a variable called {row.name!r}, which nothing reads"
            )
        elif value != value.strip():
            odd = "NCCL does not trim the value: the blanks around it become part of it"
        elif len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
            odd = "NCCL does not remove quotes in this file: they become part of the value"
        elif value.startswith("~"):
            odd = "~ is not replaced in this file"
        yield Setting(bare, _plain(value), row.line or 0, odd=odd)
