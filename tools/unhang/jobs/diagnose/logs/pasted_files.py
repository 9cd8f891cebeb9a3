"""Scripts and code inside a report: people paste the job's script and their program beside its output. Each piece is found by its lines, and lint reads it.

Lines in, pieces out. A piece of shell begins with a line that only a script has, and goes on while lines are shell; a piece of Python is as long as it parses.
The YAML of pods or compose counts if it is valid as a whole.
"""

from __future__ import annotations

import ast
import re
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from unhang.jobs.diagnose.logs.reading import Block

MOST_LINES = 3000  # of one input; reports are shorter
MOST_PIECES = 16
LONGEST_PIECE = 400
LONGEST = 2000  # letters of a line
SHORTEST_CODE = 3
MOST_PARSES = 8  # of one piece, each of fewer lines
MOST_STARTS = 64  # lines of a report from which on code is parsed
MOST_MANIFESTS = 8  # the same of YAML
LARGEST_PIECE = 64 * 1024  # letters
_FENCE = re.compile(r"^\s{0,8}(?:```|~~~)")
_BATCH = re.compile(r"^\s{0,8}#SBATCH\s")
_PROMPT = re.compile(r"^\s{0,8}(?:[\w.@~:/-]{1,60}[$#]|[$>])\s{1,4}(?=\S)")
_LAUNCH = re.compile(
    r"^\s{0,8}(?:\w{1,60}=\S{0,200}\s{1,8}){0,20}(?:sudo |uv run |time |nohup |exec )?"
    r"(?:srun|torchrun|mpirun|mpiexec|horovodrun|deepspeed|accelerate launch|docker run|podman run|ray (?:start|job submit)|vllm serve|swift \w{2,12}|"
    r"llamafactory-cli|python3? -m [\w.]{2,60}|python3? \S{1,200}\.py)(?!\S)"
)
_SHELL = re.compile(
    r"^\s{0,40}(?:#|(?:export |declare -x )?[A-Za-z_]\w{0,60}=|"
    r"(?:source|module|conda|cd|echo|mkdir|ulimit|sleep|set|unset|bash|sh|eval|wait|exit|scontrol|if|then|else|elif|fi|for|do|done|while|case|esac|function|"
    r"nvidia-smi|env|hostname|date|trap)(?:[\s;]|$)|"
    r"-{1,2}[A-Za-z][\w-]{0,60}(?:[= ]|$|\s{0,4}\\)|[}{)]|\S{1,200}\s{0,4}\\$)"
)
_CODE = re.compile(r"^\s{0,12}(?:import \w|from [\w.]{1,80} import |def \w|class \w|@\w|if __name__)")
_MANIFEST = re.compile(r"^\s{0,12}(?:- )?(?:apiVersion|kind|services):(?:\s|$)")
_YAML = re.compile(r"^\s{0,80}(?:#|---|- |[\"']?[\w./-]{1,100}[\"']?:(?:\s|$)|$)|^\s{2,80}\S")
_STARTS_PODS = re.compile(r"^\s{0,40}(?:- )?(?:containers|replicas|image|trainer):", re.MULTILINE)
_FRAME = re.compile(r'^\s{0,12}File "')


class Piece(NamedTuple):
    """kind: as lint names it. first: the number of its first line in the report."""

    kind: str
    first: int
    text: str


def kept_lines(blocks: Iterable[Block], kept: list[tuple[int, str]]) -> Iterator[Block]:
    """The blocks as they come; their first lines, with numbers, are added to `kept`."""
    for block in blocks:
        for index in range(min(len(block.lines), MOST_LINES - len(kept))):
            kept.append((block.number(index), block.lines[index][:LONGEST].decode("utf-8", "replace")))
        yield block


def pieces_in(lines: Sequence[tuple[int, str]]) -> list[Piece]:
    """The scripts and the code among the lines of a report, at most MOST_PIECES. lines: (number, text)."""
    texts, at = [text for _, text in lines], 0
    found: list[Piece] = []
    starts = manifests = 0
    while at < len(texts) and len(found) < MOST_PIECES:
        kind, end = "python", at
        if starts < MOST_STARTS and _CODE.match(texts[at]):
            starts, end = starts + 1, _end_of_code(texts, at)
        elif manifests < MOST_MANIFESTS and _MANIFEST.match(texts[at]):
            manifests, kind, end = manifests + 1, "kubernetes", _end_of_manifest(texts, at)
        if end == at:
            kind, end = "shell", _end_of_shell(texts, at)
        if end > at:
            part = texts[at:end]
            is_batch = kind == "shell" and any(_BATCH.match(line) for line in part)
            if kind != "shell" or is_batch or any(_LAUNCH.match(line) for line in map(_bare, part)):
                text = "\n".join(map(_bare, part)) if kind == "shell" else textwrap.dedent("\n".join(part))
                found.append(Piece("slurm" if is_batch else kind, lines[at][0], text))
        at = max(end, at + 1)
    return found


def _bare(line: str) -> str:
    return _PROMPT.sub("", line).lstrip() if _BATCH.match(line) is None and not line.startswith("#!") else line.lstrip()


def _end_of_shell(texts: Sequence[str], at: int) -> int:
    """The end of the run of shell lines that begins here; blank lines are inside, not at its end."""
    end, continued, number = at, False, at
    while number < len(texts) and number - at < LONGEST_PIECE and not _FENCE.match(texts[number]):
        line = _bare(texts[number])
        if line.strip():
            if not (continued or _BATCH.match(line) or _LAUNCH.match(line) or _SHELL.match(line)):
                break
            end = number + 1
            continued = line.rstrip().endswith("\\")
        elif number == at:
            break
        number += 1
    return end


def _end_of_manifest(texts: Sequence[str], at: int) -> int:
    """The end of the YAML of pods or compose that begins here; `at` if it is not valid as a whole or starts no containers."""
    from unhang.jobs.lint.yaml_nodes import read_yaml  # brings a parser along, which a log alone does not need

    most = min(len(texts), at + LONGEST_PIECE)
    end = next((number for number in range(at, most) if not _YAML.match(texts[number])), most)
    text = textwrap.dedent("\n".join(texts[at:end])).rstrip()
    is_manifest = len(text) <= LARGEST_PIECE and _STARTS_PODS.search(text) and read_yaml(text).is_valid
    return at + text.count("\n") + 1 if is_manifest else at


def _end_of_code(texts: Sequence[str], at: int) -> int:
    """The end of the code that begins here: as many lines as parse together."""
    if at and _FRAME.match(texts[at - 1]):
        return at
    end, letters = at, 0
    while end < min(len(texts), at + LONGEST_PIECE) and not (_FENCE.match(texts[end]) or texts[end].lstrip().startswith(("#!", "#SBATCH"))):
        letters += len(texts[end]) + 1
        if letters > LARGEST_PIECE:
            break
        end += 1
    for _ in range(MOST_PARSES):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ast.parse(textwrap.dedent("\n".join(texts[at:end])))
        except SyntaxError as problem:
            end = at + min((problem.lineno or 1) - 1, end - at - 1)
        except (ValueError, RecursionError, MemoryError):
            return at
        else:
            break
        if end - at < SHORTEST_CODE:
            return at
    else:
        return at
    return end if end - at >= SHORTEST_CODE else at
