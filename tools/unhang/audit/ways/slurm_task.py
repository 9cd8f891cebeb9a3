"""What srun starts on a node: the one-file collector, which sbcast brought or standard input
brings; it runs once and nothing of it stays."""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Sequence

from unhang.core.ansible.answer import ANSWER_LIMIT_CHARS
from unhang.core.strict_json import NotStrict

STDIN = "-"
WANTED = 76  # the code of a node where sbcast's file is missing or another one
# slurmstepd cuts lines of more than 1,024 bytes, and srun mixes the parts of its tasks
PIECE_CHARS = 900
END = re.compile(r"= (-?\d{1,4}) (\d{1,8})")

# Another user may have written to the folder of sbcast's file: what was read is compared and then
# run from a file of the caller's own.
TASK = f"""
import base64, hashlib, os, stat, subprocess, sys, tempfile, zlib
place, name = sys.argv[1:3]
def brought():
    if place == "{STDIN}":
        return sys.stdin.buffer.read(1 << 26)
    try:
        handle = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(handle, "rb") as source:
            found = source.read(1 << 26) if stat.S_ISREG(os.fstat(handle).st_mode) else b""
        os.unlink(place)
        return found
    except OSError:
        return b""
def answer(code, out):
    text = base64.b64encode(zlib.compress(out)).decode()
    lines = ["~" + text[at : at + {PIECE_CHARS}] for at in range(0, len(text), {PIECE_CHARS})]
    sys.stdout.write("\\n" + "\\n".join(lines + ["~= %d %d" % (code, len(text))]) + "\\n")
data = brought()
if hashlib.sha256(data).hexdigest() != name:
    if place == "{STDIN}":
        sys.exit("expected the collector " + name[:12] + ", found other bytes; it was not started")
    answer({WANTED}, b"")
    sys.exit(0)
handle, own = tempfile.mkstemp(prefix="unhang-collect-", suffix=".pyz")
try:
    with os.fdopen(handle, "wb") as target:
        target.write(data)
    argv = [sys.executable, "-I", "-S", own] + sys.argv[3:]
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as child:
        out = child.stdout.read({ANSWER_LIMIT_CHARS} + 1)
        if len(out) > {ANSWER_LIMIT_CHARS}:
            child.kill()
finally:
    os.unlink(own)
answer(child.returncode, out)
"""


def task_words(
    interpreter: str, become: Sequence[str], digest: str, place: str, arguments: Sequence[str]
) -> list[str]:
    """The words for srun. become: words before the interpreter; place: of sbcast's file, or STDIN;
    arguments: of the collector."""
    return [*become, interpreter, "-I", "-S", "-c", TASK, place, digest, *arguments]


def unpack_answer(pieces: Sequence[str], expected_chars: int) -> str:
    """What the collector printed; longer by one than an answer may be if it is longer. Raises
    NotStrict for half an answer and for what is none."""
    text = "".join(pieces)
    if len(text) != expected_chars:
        raise NotStrict(f"expected an answer in {expected_chars} characters, found {len(text)}")
    try:
        packed = zlib.decompressobj()
        out = packed.decompress(base64.b64decode(text, validate=True), ANSWER_LIMIT_CHARS + 1)
    except (binascii.Error, ValueError, zlib.error) as problem:
        raise NotStrict(f"expected a packed answer, found what is none: {problem}") from None
    if not packed.eof and len(out) <= ANSWER_LIMIT_CHARS:
        raise NotStrict("expected a whole answer, found half of one")
    return out.decode("utf-8", "replace")
