"""A diagnosis as the command line makes it: the files with which a job was started are read as lint
reads them."""

from __future__ import annotations

from functools import partial

from unhang.commands.for_jobs import JOB_READER, REFERENCE
from unhang.jobs.diagnose import diagnosing

diagnose = partial(diagnosing.diagnose, reader=JOB_READER, reference=REFERENCE)
read_all = partial(diagnosing.read_all, reader=JOB_READER)
