"""The programs that the smoke test's action plugin runs on a node: small, for `python3 -`, with one
line of JSON as the answer."""

from __future__ import annotations

import base64
import json
import shlex
import zlib
from typing import Any

# Runs the payload's survey from a folder of its own, which the payload removes.
SURVEY = """
import base64, os, sys, tempfile, zlib
path = os.path.join(tempfile.mkdtemp(prefix='unhang-smoke-'), given['name'])
with open(path, 'wb') as target:
    target.write(zlib.decompress(base64.b64decode(given['payload'])))
os.execv(sys.executable, [sys.executable, '-I', path, 'survey', '--remove-self'])
"""

# Makes a folder of its own and puts the payload and its plan there.
PLACE = """
import base64, json, os, tempfile, zlib
place = tempfile.mkdtemp(prefix='unhang-smoke-')
for name, content in ((given['name'], zlib.decompress(base64.b64decode(given['payload']))), ('plan.json', json.dumps(given['plan']).encode())):
    with open(os.path.join(place, name), 'wb') as target:
        target.write(content)
with open('/proc/sys/kernel/random/boot_id') as source:
    print(json.dumps({'place': place, 'boot_id': source.read().strip()}))
"""  # noqa: E501

# Waits, for a few seconds at most, until the job is over, and answers with all that it reported.
ANSWER = """
import base64, json, os, time, zlib
events, until = os.path.join(given['place'], 'events.jsonl'), time.monotonic() + given['wait_s']
def over():
    try:
        with open(given['job']) as source:
            job = json.load(source)
            return 'started' not in job or bool(job.get('finished'))
    except (OSError, ValueError):
        return False
def reported():
    try:
        with open(events, 'rb') as source:
            source.seek(max(0, os.path.getsize(events) - 4096))
            return b'"e": "node_end"' in source.read()
    except OSError:
        return False
with open('/proc/sys/kernel/random/boot_id') as source:
    answer = {'boot_id': source.read().strip(), 'place': os.path.isdir(given['place'])}
while answer['place'] and not over() and time.monotonic() < until:
    time.sleep(0.1)
answer['over'] = over()
answer['reported'] = reported()
answer['job'] = None
if answer['over'] or given['last']:
    try:
        with open(events, 'rb') as source:
            answer['events'] = base64.b64encode(zlib.compress(source.read(given['most_bytes']))).decode()
    except OSError as problem:
        answer['problem'] = '%s: %s' % (problem.filename, problem.strerror)
    try:
        with open(given['job']) as source:
            job = json.load(source)
        answer['job'] = {'rc': job.get('rc'), 'msg': str(job.get('msg') or '')[:400], 'stderr': str(job.get('stderr') or '')[-400:]}
    except (OSError, ValueError, AttributeError):
        pass
print(json.dumps(answer))
"""  # noqa: E501

# Removes what PLACE and the job wrote. What cannot be removed is reported.
REMOVE = """
import json, os, shutil
problems = []
for path in (given['place'], given['job']):
    try:
        shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as problem:
        problems.append('%s: %s' % (problem.filename or path, problem.strerror))
print(json.dumps({'problem': '; '.join(problems) or None}))
"""


def program_line(python: str) -> str:
    """The shell's line that runs what comes by standard input; -I keeps the current folder out of
    what it may import."""
    return f"{shlex.quote(python)} -I -"


def program_text(program: str, given: dict[str, Any]) -> bytes:
    """For its standard input: the program, with what it is given as a variable."""
    return f"import json\ngiven = json.loads({json.dumps(given)!r})\n{program}".encode()


def packed(content: bytes) -> str:
    """As PLACE reads it."""
    return base64.b64encode(zlib.compress(content, 9)).decode("ascii")


def unpacked(text: str, most_bytes: int) -> bytes:
    """What ANSWER sent, at most so much of it. Raises ValueError."""
    try:
        return zlib.decompressobj().decompress(base64.b64decode(text), most_bytes)
    except zlib.error as problem:
        raise ValueError(str(problem)) from None


def answered(output: str) -> dict[str, Any]:
    """The last line that is a JSON object, {} if there is none. A node may print anything."""
    for line in reversed(output.splitlines()):
        if line.startswith("{"):
            try:
                found = json.loads(line)
            except (ValueError, RecursionError):
                return {}
            return found if isinstance(found, dict) else {}
    return {}
