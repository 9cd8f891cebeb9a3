"""Reports a file of Python or YAML that its parser refuses, because most rules do not apply to it
then. Text in, values out."""

from __future__ import annotations

import re
from collections.abc import Iterator

from unhang.jobs.job_files import Finding
from unhang.jobs.lint.python_names import read_python
from unhang.jobs.lint.yaml_nodes import read_yaml

_TEMPLATE = re.compile(r"\{\{|\{%|<%")
_LANGUAGES = {
    "python": (
        "Python",
        "only settings were read",
        "what python3 -m py_compile accepts",
        "https://docs.python.org/3/reference/",
    ),
    "kubernetes": (
        "YAML",
        "only settings and GPUs were read, line by line",
        "what a parser of YAML accepts",
        "https://yaml.org/spec/1.2.2/",
    ),
}
_RENDERED = "the rendered text: helm template chart/ | unhang lint - --kind kubernetes"


def check_parsed(text: str, kind: str) -> Iterator[Finding]:
    """One finding if the text could not be parsed: a warning if it is not valid, info for a
    template and for what is too large or deep."""
    if kind not in _LANGUAGES:
        return
    name, left, instead, source = _LANGUAGES[kind]
    read = read_python(text) if kind == "python" else read_yaml(text)
    if not read.is_read:
        why = (
            f"the file was not parsed as {name}, being too large or deep, not UTF-8, or with one"
            f" anchor twice; {left}"
        )
        yield Finding(
            1, "not-parsed", "info", "the whole file", why, "a smaller file, in UTF-8", source
        )
    elif read.line is not None:
        line = text.splitlines()[read.line - 1 :][:1]
        is_template = _TEMPLATE.search(text if kind == "kubernetes" else "".join(line)) is not None
        why = (
            f"the file is no valid {name} (line"
            f" {read.line}){', but a template' if is_template else ''}; {left}"
        )
        shown = "".join(line).strip() or "the end of the file"
        yield Finding(
            read.line,
            "not-parsed",
            "info" if is_template else "warning",
            shown,
            why,
            _RENDERED if is_template else instead,
            source,
        )
