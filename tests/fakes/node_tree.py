"""A node made of files: trees, ELF libraries and linker caches written by tests, and the check that
the fragments fit the schema."""

from __future__ import annotations

import functools
import os
import struct
import subprocess
from pathlib import Path

import jsonschema_rs
import yaml

from unhang_node.base.context import DEFAULTS, Context
from unhang_node.base.root import Root

SCHEMA = Path(__file__).parents[2] / "tools" / "unhang" / "core" / "schemas" / "node-facts-1.yaml"


class Link(str):
    """A symbolic link to this target."""


def held_packages(folder):
    """Names on hold, as dpkg itself reports them."""
    output = subprocess.run(
        ["dpkg", f"--root={folder}", "--get-selections"], capture_output=True, text=True, check=True
    ).stdout
    return {
        line.split()[0].split(":")[0] for line in output.splitlines() if line.split()[1] == "hold"
    }


def plant(folder, files):
    """Writes {absolute path of the node: text, bytes or Link} below `folder`; a path that ends in
    "/" is a folder. Gives the Root of the tree."""
    for path, content in files.items():
        place = Path(str(folder) + path)
        if path.endswith("/"):
            place.mkdir(parents=True, exist_ok=True)
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Link):
            place.symlink_to(str(content))
        else:
            place.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return Root([str(folder)])


def context(root, sections, now_s=1_000_000.0, **options):
    """The context that a source gets in a test: its marks are ignored."""
    return Context(root, {**DEFAULTS, **options}, sections, load_pynvml=None, now_s=now_s)


@functools.cache
def _validator():
    return jsonschema_rs.validator_for(yaml.safe_load(SCHEMA.read_text(encoding="utf-8")))


def assert_fits_schema(section, fields, unread=()):
    """Fails when a fragment has a field, type or row that the schema does not have."""
    probe = {"status": "ok", "unread": list(unread)}
    _validator().validate(
        {
            "schema": "unhang/node-facts/1",
            "collector": {"version": "0"},
            "sections": {section: {**fields, "probe": probe}},
        }
    )


def merged(pieces, section):
    """(fields, unread rows) of one section from a source's pieces, each of which is checked; lists
    are joined. An exception is raised."""
    fields, unread = {}, []
    for name, fragment, rows, *_more in pieces:
        if name != section:
            continue
        if isinstance(fragment, Exception):
            raise fragment
        assert_fits_schema(section, fragment, rows)
        for key, value in fragment.items():
            fields[key] = (
                fields[key] + value
                if isinstance(value, list) and isinstance(fields.get(key), list)
                else value
            )
        unread.extend(rows)
    return fields, unread


def elf_file(sections, filler_bytes=0):
    """A 64-bit little-endian ELF file with {name: bytes} sections, and a hole of `filler_bytes`
    before the section table, as device code would be."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name in [*sections, ".shstrtab"])
    body, rows = b"", [struct.pack("<IIQQQQIIQQ", *([0] * 10))]
    for name, content in [*sections.items(), (".shstrtab", names)]:
        offset = 64 + len(body)
        kind = 7 if name.startswith(".note") else 3 if name == ".shstrtab" else 1
        rows.append(
            struct.pack(
                "<IIQQQQIIQQ",
                names.index(b"\0" + name.encode() + b"\0") + 1,
                kind,
                0,
                0,
                offset,
                len(content),
                0,
                0,
                1,
                0,
            )
        )
        body += content
    table = 64 + len(body) + filler_bytes
    head = (
        b"\x7fELF\x02\x01\x01"
        + bytes(9)
        + struct.pack(
            "<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, table, 0, 64, 0, 0, 64, len(rows), len(rows) - 1
        )
    )
    return head + body + bytes(filler_bytes) + b"".join(rows)


def build_id_note(build_id):
    """A .note.gnu.build-id section."""
    return struct.pack("<III", 4, len(build_id), 3) + b"GNU\0" + build_id


def nccl_library(version="2.21.5", cuda="12.4", build_id=b"\xab\xcd" * 10):
    """A file that looks like libnccl.so.2 to a reader of its sections."""
    banner = "NCCL version {}{}".format(version, "+cuda" + cuda if cuda else "")
    text = b"NCCL version mismatch\0" + bytes(64) + banner.encode() + b"\0 %s\0"
    return elf_file(
        {".note.gnu.build-id": build_id_note(build_id), ".text": bytes(128), ".rodata": text}
    )


def kernel_module(version):
    """A .ko whose .modinfo names its version."""
    return elf_file({".modinfo": b"license=NVIDIA\0version=" + version.encode() + b"\0author=x\0"})


def ld_cache(entries, flags=0x0303):
    """/etc/ld.so.cache of [(soname, path)] in glibc's new format."""
    strings, rows = b"", []
    base = 48 + 24 * len(entries)
    for soname, path in entries:
        key = base + len(strings)
        strings += soname.encode() + b"\0"
        value = base + len(strings)
        strings += path.encode() + b"\0"
        rows.append(struct.pack("<iIIIQ", flags, key, value, 0, 0))
    return (
        b"glibc-ld.so.cache1.1"
        + struct.pack("<IIB3xI12x", len(entries), len(strings), 2, 0)
        + b"".join(rows)
        + strings
    )


def dpkg_status(packages, filler=0):
    """A dpkg status file of {name: (status words, version)} or {name: version}, with `filler` other
    packages around them."""
    stanzas = [
        f"Package: aaa{number}\nStatus: install ok installed\nVersion: 1.{number}\nDescription: x\n"
        for number in range(filler)
    ]
    for name, entry in packages.items():
        status, version = entry if isinstance(entry, tuple) else ("install ok installed", entry)
        stanzas.append(
            f"Package: {name}\nStatus: {status}\nPriority: optional\nArchitecture: amd64\nVersion:"
            f" {version}\nDescription: y\n lines\n"
        )
    return "\n".join(stanzas)


def make_fifo(folder, path):
    """A FIFO without a writer: opening it without O_NONBLOCK blocks for ever."""
    place = Path(str(folder) + path)
    place.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(place)
