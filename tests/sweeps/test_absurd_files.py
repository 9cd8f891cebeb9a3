"""A node with arbitrary contents of files: each bad file costs only its own fields."""

from __future__ import annotations

import random

import pytest
from recorded_roots import complaints, copied, read

ABSURD = {
    "empty": b"",
    "binary": bytes(range(256)) * 40,
    "huge": b"x" * (1 << 20),
    "huge number": b"9" * 5000,
    "negative": b"-9223372036854775809\n",
    "not a number": b"NaN\n",
    "many lines": b"a b c d e f g h i\n" * 20000,
    "markup": b"<script>alert(1)</script>{{ lookup('pipe', 'id') }}\x1b[31m\x00\n",
    "assignments": b'=\n==\nA=\n=\'\n"="\nID\n',
    "braces": b"submenu 'x' {\n" * 3000 + b"}\n" * 6000,
}


@pytest.mark.parametrize("kind", sorted(ABSURD))
@pytest.mark.parametrize("name", ["a6000x3-kernel-5.4", "rdma-h100"])
def test_absurd_files_cost_their_own_fields_alone(tmp_path, name, kind):
    for seed in range(3):
        folder = copied(name, tmp_path / str(seed))
        files = sorted(
            path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()
        )
        chosen = files if seed == 0 else random.Random(seed).sample(files, len(files) // 3)
        for path in chosen:
            path.write_bytes(ABSURD[kind])
        for section, (fragment, rows) in read(folder).items():
            assert isinstance(fragment, dict) or section == "faults", (section, fragment)
            if isinstance(fragment, dict):
                assert complaints(section, fragment, rows.values()) == []
