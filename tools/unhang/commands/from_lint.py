"""What lint hands to the diagnosis of a job: how the files with which it was started are read; it is imported when it is asked."""

from __future__ import annotations

from pathlib import Path

from unhang.jobs.job_files import JobFile, JobReader


def _kind(path: Path | None) -> str | None:
    from unhang.jobs.lint.job_kinds import job_kind

    return job_kind(path)


def _read(name: str, path: Path, kind: str) -> JobFile | None:
    from unhang.jobs.lint.job_reading import read_job_file

    return read_job_file(name, path, kind)


def _only_starts(path: Path, kind: str) -> bool:
    from unhang.jobs.lint.job_reading import only_starts_a_job

    return only_starts_a_job(path, kind)


JOB_READER = JobReader(_kind, _read, _only_starts)
