"""Environment variables in the files of PAM, sshd, Slurm, enroot, Podman and Docker."""

from __future__ import annotations

import re

from ...base.parse.assignment import Assignment
from ...base.parse.values import parse_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_PAM = re.compile(r"(DEFAULT|OVERRIDE)=(\"[^\"]*\"|\S*)")
# sshd's line: a keyword, then blanks or one "=", then words; a "#" at the beginning of a word
# begins a comment.
_SSHD_LINE = re.compile(r"\s*(\w+)(?:\s*=\s*|\s+)(.*)")
_SSHD_WORD = re.compile(r"(?<!\S)#.*|(?:\"[^\"]*\"|'[^']*'|[^\s\"'])+")
_QUOTED = re.compile(r"([\"'])(.*?)\1")
# What matters in an array of TOML: its strings, a comment, its end.
_TOML_PART = re.compile(r'"((?:[^"\\]|\\.)*)"|\'([^\']*)\'|#.*|\]')
_TOML_TABLE = re.compile(r"\[{1,2}\s*([^\[\]]*?)\s*\]")


def parse_environment(text: str) -> list[Assignment]:
    """[Assignment] of /etc/environment as pam_env reads it: NAME=value, with an optional "export "
    before it; "#" begins a comment, and quotes are removed.

    pam_env expands nothing here: "$" is a plain character (pam_env(8)).
    """
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.split("#")[0].strip()
        name, equals, value = (bare[7:].lstrip() if bare.startswith("export ") else bare).partition(
            "="
        )
        if equals and name and not re.search(r"\W", name):
            if value[:1] in ("'", '"'):
                value = value[1:-1] if len(value) > 1 and value[-1] == value[0] else value[1:]
            rows.append(Assignment(name=name, value=value, line=number))
    return rows


def parse_pam_env_conf(text: str) -> list[Assignment]:
    """[Assignment] of /etc/security/pam_env.conf: NAME DEFAULT=value OVERRIDE=value; a value that
    refers to other variables is not certain."""
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.strip().split(None, 1)
        if len(fields) != 2 or fields[0].startswith("#"):
            continue
        parts = {key: value.strip('"') for key, value in _PAM.findall(fields[1])}
        value = parts.get("OVERRIDE") or parts.get("DEFAULT")
        if value is not None:
            rows.append(
                Assignment(
                    name=fields[0],
                    value=value,
                    line=number,
                    certain="$" not in value and "@" not in value,
                )
            )
    return rows


def parse_sshd_setenv(text: str) -> list[Assignment]:
    """[Assignment] of SetEnv lines of sshd_config; those under a Match are not certain."""
    rows, matched = [], False
    for number, line in enumerate(text.splitlines(), 1):
        found = _SSHD_LINE.match(line)
        keyword, rest = (found.group(1).lower(), found.group(2)) if found else ("", "")
        if keyword == "match":
            matched = rest.strip().lower() != "all"
        elif keyword == "setenv":
            for word in _SSHD_WORD.findall(rest):
                name, equals, value = _QUOTED.sub(r"\2", word).partition("=")
                if equals and name and not word.startswith("#"):
                    rows.append(
                        Assignment(name=name, value=value, line=number, certain=not matched)
                    )
    return rows


def parse_slurm_conf(text: str) -> dict[str, tuple[str, int]]:
    """{key in lower case: (value, line)} of slurm.conf's plain `Key=Value` lines (without nodes and
    partitions)."""
    pairs = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, equals, value = line.split("#")[0].strip().partition("=")
        if equals and name.lower() not in ("nodename", "partitionname", "downnodes"):
            pairs[name.strip().lower()] = (value.strip(), number)
    return pairs


def parse_enroot_env(text: str) -> list[Assignment]:
    """[Assignment] of enroot's environ.d/*.env: NAME=value; a value that refers to other variables
    is not certain."""
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        name, equals, value = line.strip().partition("=")
        if equals and name and not name.startswith("#"):
            rows.append(Assignment(name=name, value=value, line=number, certain="$" not in value))
    return rows


def parse_containers_conf(text: str) -> list[Assignment]:
    """[Assignment] of `env = ["NAME=value", …]` in [containers] of Podman's containers.conf."""
    rows, section, inside = [], "", False
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        opening = (
            re.match(r"env\s*=\s*\[", line) if section == "containers" and not inside else None
        )
        table = None if inside else _TOML_TABLE.match(line)
        if opening:
            inside, line = True, line[opening.end() :]
        elif table:
            section = table.group(1)
        for found in _TOML_PART.finditer(line) if inside else ():
            if found.group() == "]":
                inside = False
                break
            name, equals, value = (found.group(1) or found.group(2) or "").partition("=")
            if equals:
                rows.append(Assignment(name=name, value=value, line=number))
    return rows


def parse_docker_container(text: str) -> tuple[str, bool, list[Assignment]]:
    """(name, running, [Assignment]) of a container's config.v2.json. Raises ValueError if the file
    has another form."""
    container = parse_json(text)
    if not isinstance(container, dict):
        raise ValueError("no object")
    state, config = container.get("State"), container.get("Config")
    rows = []
    for entry in (config.get("Env") if isinstance(config, dict) else None) or []:
        name, equals, value = entry.partition("=") if isinstance(entry, str) else ("", "", "")
        if equals:
            rows.append(Assignment(name=name, value=value, line=None))
    called = container.get("Name")
    return (
        called.strip("/") if isinstance(called, str) else "",
        bool(isinstance(state, dict) and state.get("Running") is True),
        rows,
    )


def container_prefixed(assignments: Iterable[Assignment]) -> list[Assignment]:
    """Variables that APPTAINERENV_NAME and SINGULARITYENV_NAME set inside Apptainer's containers,
    as NAME."""
    rows = []
    for row in assignments:
        for prefix in ("APPTAINERENV_", "SINGULARITYENV_"):
            if row.name.startswith(prefix):
                rows.append(
                    Assignment(
                        name=row.name[len(prefix) :],
                        value=row.value,
                        line=row.line,
                        certain=row.certain,
                    )
                )
    return rows
