"""Builds dist/unhang-collect.pyz: the collector and nvidia-ml-py in one file for Python 3.8 or
newer. Same input, same bytes.

    python tools/collector/build.py [--python python3.12 ...] [TARGET]

Python compiles a zip file at each start, 100 ms of CPU and more: so compiled code is added to the
sources, for the Python that builds and for those named with --python; a node with one of these
versions uses it, any other node uses the sources. Of nvidia-ml-py (BSD licence, its header is kept)
only the parts that the collector calls are included, found from the names that it uses: importing
all of it costs 60 to 90 ms each time.
"""

from __future__ import annotations

import argparse
import ast
import base64
import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
PACKAGE = PROJECT / "module_utils" / "unhang_node"
MAINS = HERE / "mains"  # the __main__.py of each program, and the entry that all of them start by
LONG_AGO = (1980, 1, 1, 0, 0, 0)
NVML_NAME = re.compile(r"\b(?:nvml|NVML|c_nvml)\w+")


# Runs in a new process of each Python: sources as JSON on stdin, [magic number, {name: code}] on
# stdout. Its header marks the code "unchecked".
COMPILE = """
import base64, importlib.util, json, marshal, sys
sources = json.load(sys.stdin)
header = importlib.util.MAGIC_NUMBER + bytes([1, 0, 0, 0]) + bytes(8)
codes = {name: compile(text, name, "exec", dont_inherit=True, optimize=2) for name, text in sorted(sources.items())}
answer = {name + "c": base64.b64encode(header + marshal.dumps(code)).decode() for name, code in codes.items()}
json.dump([importlib.util.MAGIC_NUMBER.hex(), answer], sys.stdout)
"""  # noqa: E501


def build(target: Path, pythons: Iterable[str] = ()) -> Path:
    """Writes the .pyz to `target` (a Path), atomically. pythons: further interpreters to compile
    for."""
    return build_program(target, MAINS / "collect.py", pythons)


def build_program(target: Path, main: Path, pythons: Iterable[str] = ()) -> Path:
    """A .pyz with this __main__.py: the modules of unhang_node that it imports, directly or through
    others, and nvidia-ml-py."""
    sources = packed_sources(*imported_names(ast.parse(main.read_text("utf-8")), ""))
    spec = find_spec("pynvml")
    if spec is None or spec.origin is None:
        raise SystemExit(
            f"nvidia-ml-py is not installed for {sys.executable}; run `make setup` first"
        )
    whole = Path(spec.origin).read_text("utf-8")
    sources["pynvml.py"] = trim_pynvml(whole, used_names("\n".join(sources.values())))
    files = {name: text.encode("utf-8") for name, text in sources.items()}
    for python in [sys.executable, *pythons]:
        files.update(compiled(python, sources))
    return write_archive(target, {**files, **started_by(main)})


def started_by(main: Path) -> dict[str, bytes]:
    """{path in the archive: bytes} of the files that run on any Python: what the interpreter
    starts, and the entry that it calls."""
    return {
        "__main__.py": main.read_bytes(),
        "unhang_entry.py": (MAINS / "unhang_entry.py").read_bytes(),
    }


def write_archive(
    target: Path, files: Mapping[str, bytes], head: bytes = b"#!/usr/bin/env python3\n"
) -> Path:
    """Writes a program of these files to `target`, atomically; the same files give the same bytes.
    head: what the kernel runs; Python looks only behind it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{target.name}.{os.getpid()}")
    with partial.open("wb") as out:
        out.write(head)
        with zipfile.ZipFile(out, "w") as archive:
            for name in sorted(files):
                entry = zipfile.ZipInfo(name, LONG_AGO)
                entry.external_attr = 0o644 << 16
                # Compiled code is stored uncompressed, because decompression costs 5 ms at each
                # start. The sources are for the rare other Python.
                entry.compress_type = (
                    zipfile.ZIP_STORED if name.startswith("code-") else zipfile.ZIP_DEFLATED
                )
                archive.writestr(entry, files[name])
    partial.chmod(0o755)
    partial.replace(target)
    return target


def packed_sources(*entries: str) -> dict[str, str]:
    """{path in the archive: text} of the modules of unhang_node that `entries` import, directly or
    through others, anywhere in a file. Modules that change a node are not included, because no
    module that reads a node imports them."""
    found: dict[str, str] = {}
    todo = [*entries]
    while todo:
        name = todo.pop()
        path = module_file(name)
        if path is None or path.relative_to(PACKAGE.parent).as_posix() in found:
            continue
        text = path.read_text("utf-8")
        found[path.relative_to(PACKAGE.parent).as_posix()] = text
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        todo += [name.rpartition(".")[0], *imported_names(ast.parse(text), package)]
    return found


def module_file(name: str) -> Path | None:
    """The file of a module of unhang_node; None for every other name, such as one that a module
    defines."""
    place = PACKAGE.parent / name.replace(".", "/")
    if name.split(".")[0] != PACKAGE.name:
        return None
    return next(
        (path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()), None
    )


def imported_names(tree: ast.Module, package: str) -> list[str]:
    """Full dotted names that a module of `package` imports, and what it takes from each, which may
    be a module too."""
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parents = (
                package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            )
            base = ".".join([*parents, *filter(None, [node.module])])
            names += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return names


def compiled(python: str, sources: dict[str, str]) -> dict[str, bytes]:
    """{path in the archive: bytes} of the sources compiled by one interpreter."""
    done = subprocess.run(
        [python, "-I", "-S", "-c", COMPILE],
        input=json.dumps(sources),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(
            f"{python} could not compile the collector:"
            f" {(done.stderr.strip().splitlines() or ['it printed nothing'])[-1]}"
        )
    magic, codes = json.loads(done.stdout)
    return {f"code-{magic}/{name}": base64.b64decode(code) for name, code in codes.items()}


def packages(distributions: Mapping[str, str]) -> dict[str, bytes]:
    """{path in the archive: bytes} of other projects' packages: only their Python files, with their
    licences. distributions: {package: its distribution}."""
    files: dict[str, bytes] = {}
    for name, distribution in distributions.items():
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            raise SystemExit(
                f"{name} is not installed for {sys.executable}; run `make setup` first"
            )
        folder = Path(spec.origin).parent
        files |= {
            f"{name}/{path.relative_to(folder).as_posix()}": path.read_bytes()
            for path in sorted(folder.rglob("*.py"))
        }
        of_it = [
            path
            for path in folder.parent.glob("*.dist-info/**/*")
            if path.parts[len(folder.parent.parts)].lower().startswith(f"{distribution}-")
        ]
        licences = [path for path in of_it if path.name.startswith(("LICENSE", "COPYING"))]
        if not licences:
            raise SystemExit(f"the licence of {name} is not beside it")
        files |= {f"{name}/{path.name}": path.read_bytes() for path in licences}
    return files


def used_names(text: str) -> set[str]:
    """nvidia-ml-py's names in the collector's source; of a function also its later versions,
    because some names are composed at run time."""
    return set(NVML_NAME.findall(text))


def trim_pynvml(text: str, used: set[str]) -> str:
    """nvidia-ml-py's source with the definitions that `used` needs, directly or through others."""
    tree = ast.parse(text)
    definitions: dict[str, list[ast.stmt]] = {}
    for node in tree.body:
        for name in defined_names(node):
            definitions.setdefault(name, []).append(node)
    always = [node for node in tree.body if not defined_names(node)]
    wanted = [
        name
        for name in definitions
        if name in used or re.sub(r"_v\d$", "", name) in used or name.startswith("NVML_ERROR_")
    ]
    needed: set[str] = set()
    todo = wanted + [name for node in always for name in referenced_names(node)]
    while todo:
        name = todo.pop()
        if name in definitions and name not in needed:
            needed.add(name)
            todo += [other for node in definitions[name] for other in referenced_names(node)]
    kept = [
        node for node in tree.body if not defined_names(node) or needed & set(defined_names(node))
    ]
    header = "".join(line for line in text.splitlines(keepends=True)[:32] if line.startswith("#"))
    return header + ast.unparse(ast.Module(body=kept, type_ignores=[])) + "\n"


def defined_names(node: ast.stmt) -> list[str]:
    """Names that a top-level statement defines; [] for an import or a call, which always stay."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [
            part.id
            for target in node.targets
            for part in ast.walk(target)
            if isinstance(part, ast.Name)
        ]
    return []


def referenced_names(node: ast.AST) -> set[str]:
    """Every name in a statement."""
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def build_as_asked(build_one: Callable[[Path, Iterable[str]], Path], what: str, name: str) -> None:
    """The command line of a builder. build_one: takes the target and further interpreters, gives
    the path written; name: the target's below dist/."""
    parser = argparse.ArgumentParser(description=f"Builds the one-file {what}.")
    parser.add_argument("target", nargs="?", type=Path, default=PROJECT / "dist" / name)
    parser.add_argument(
        "--python", action="append", default=[], help="a further interpreter to compile for"
    )
    arguments = parser.parse_args()
    sys.stdout.write(f"{build_one(arguments.target, arguments.python)}\n")


if __name__ == "__main__":
    build_as_asked(build, "collector", "unhang-collect.pyz")
