"""A bundle of evidence: `unhang diagnose` says the verdict that `inspect` said, with the logs that
lie in it; a hostile archive harms nobody."""

from __future__ import annotations

import copy
import gzip
import io
import json
import random
import tarfile
from pathlib import Path

import pytest

from unhang.cli import main
from unhang.core.schemas.check import check_schema
from unhang.core.schemas.shapes import read_schema
from unhang.jobs.inspect.bundle import (
    BROKEN,
    INSPECTION,
    MOST_BYTES,
    bundle_texts,
    is_bundle,
    write_bundle,
)
from unhang.jobs.inspect.rendering import render_details
from unhang.jobs.inspect.verdict import inspection_of

EVIDENCE = Path(__file__).parents[4] / "fixtures" / "inspect" / "evidence"
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=508, GPU has fallen off the bus."


def look(scene: str) -> dict:
    return json.loads((EVIDENCE / f"{scene}-RAS-and-stacks.json").read_text(encoding="utf-8"))


def bundle(folder: Path, *documents: dict) -> Path:
    path = folder / "hang.tar.gz"
    write_bundle(path, documents, inspection_of(documents))
    return path


def archive(folder: Path, *entries: tuple[tarfile.TarInfo, bytes]) -> Path:
    path = folder / "hostile.tar.gz"
    with tarfile.open(path, mode="w:gz") as target:
        for entry, content in entries:
            entry.size = len(content)
            target.addfile(entry, io.BytesIO(content))
    return path


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    return made


def diagnosed(capsys, *arguments: str) -> tuple[int, dict]:
    code = main(["diagnose", *arguments, "-o", "json"])
    return code, json.loads(capsys.readouterr().out)


def with_kernel_line(document: dict, last_s: float | None) -> dict:
    changed = copy.deepcopy(document)
    changed["sections"]["kernel_log"]["events"] = [
        {"kind": "xid", "line": XID, "count": 1, "first_s": last_s, "last_s": last_s}
    ]
    return changed


@pytest.mark.parametrize(
    ("scene", "code", "word", "cause"),
    [
        ("never", 1, "cause", "rank_desync_app"),
        ("loader", 1, "cause", "slow_rank_or_io"),
        ("killed", 1, "cause", "rank_failed"),
        ("stopped", 3, "failure", None),
        ("path", 3, "failure", None),
        ("healthy", 4, "no_end", None),
        ("checkpoint", 4, "no_end", None),
    ],
)
def test_the_verdict_is_that_of_inspect(scene, code, word, cause, tmp_path, capsys):
    said = inspection_of([look(scene)])
    path = str(bundle(tmp_path, look(scene)))
    ended, found = diagnosed(capsys, path)
    assert (ended, found["outcome"]["word"]) == (code, word)
    assert [one["cause"] for one in found["causes"] if one["severity"] != "info"] == (
        [cause] if cause else []
    )
    assert list(check_schema(found, read_schema("diagnosis-1"))) == []
    main(["diagnose", "-v", path])
    assert said["headline"] in capsys.readouterr().out


def test_a_look_that_does_not_tell_stays_unknown(tmp_path, capsys):
    said = inspection_of([look("spin")])
    ended, found = diagnosed(capsys, str(bundle(tmp_path, look("spin"))))
    assert (said["state"], ended, found["outcome"]["word"]) == ("unknown", 4, "no_end")
    assert found["outcome"]["line"]["text"].startswith("unknown: ")
    assert "not hung" not in json.dumps(found) and "the job ran" not in json.dumps(found)


def test_the_logs_in_it_are_read(tmp_path, capsys):
    _, found = diagnosed(capsys, str(bundle(tmp_path, look("killed"))))
    assert "raised the following async exception" in found["facts"]["first_error"]["text"]
    assert found["facts"]["hosts"] == ["vm"]


def test_a_line_of_a_log_decides_over_the_verdict(tmp_path, capsys):
    document = look("stopped")
    document["sections"]["log_tail"]["logs"][0]["lines"] = [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB."
    ]
    _, found = diagnosed(capsys, str(bundle(tmp_path, document)))
    assert found["causes"][0]["cause"] == "oom"
    assert any("its end" in one["file"] for one in found["causes"][0]["evidence"])


def test_faults_of_the_kernel_count_since_the_job_began(tmp_path, capsys):
    """The ranks began 51.89 s after boot."""
    document = look("never")
    assert (
        "Xid (PCI:0000:3b:00): 79"
        in inspection_of([with_kernel_line(document, 60.0)])["suspects"][0]["why"]
    )
    for older in (40.0, None):
        assert "Xid" not in str(inspection_of([with_kernel_line(document, older)])["suspects"])
    _, found = diagnosed(capsys, str(bundle(tmp_path, with_kernel_line(document, 60.0))))
    assert "kernel log of vm" in {
        one["file"] for cause in found["causes"] for one in cause["evidence"]
    }


def test_hosts_have_one_mask_in_the_verdict_and_in_the_diagnosis(tmp_path, capsys):
    document = {**look("never"), "asked_as": "gpu-secret-03"}
    main(["diagnose", "-v", "--redact", str(bundle(tmp_path, document))])
    shown = capsys.readouterr().out
    assert "gpu-secret-03" not in shown
    assert "hung: rank 1 on <host-1>" in shown and "named: host <host-1>, rank 1" in shown


def test_what_an_archive_names_is_never_opened(tmp_path, capsys):
    """Names with .., absolute names, links and devices are names of nothing."""
    secret = tmp_path / "secret.json"
    secret.write_text(json.dumps({**look("never"), "asked_as": "secret"}))
    good = json.dumps(look("never")).encode()
    path = archive(
        tmp_path,
        (entry(INSPECTION), b"{}"),
        (entry("evidence/link.json", tarfile.SYMTYPE, str(secret)), b""),
        (entry("evidence/hard.json", tarfile.LNKTYPE, "../secret.json"), b""),
        (entry("evidence/device.json", tarfile.CHRTYPE), b""),
        (entry("evidence/fifo.json", tarfile.FIFOTYPE), b""),
        (entry("../../outside.json"), b"x"),
        (entry("/etc/outside.json"), b"x"),
        (entry("evidence/../../../a.json"), good),
    )
    before = sorted(tmp_path.rglob("*"))
    _, found = diagnosed(capsys, str(path))
    assert found["facts"]["hosts"] == ["vm"]
    assert sorted(tmp_path.rglob("*")) == before


def refused(path: Path, capsys) -> str:
    assert main(["diagnose", str(path)]) == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error and len(error.splitlines()) == 1
    return error


def test_more_than_may_be_unpacked_is_refused(tmp_path, capsys):
    path = archive(
        tmp_path, (entry(INSPECTION), b"{}"), (entry("evidence/a.json"), bytes(MOST_BYTES))
    )
    assert path.stat().st_size < MOST_BYTES // 100
    assert "at most 64 MiB" in refused(path, capsys)


@pytest.mark.parametrize("cut", [200, 3])
def test_an_archive_that_breaks_off_is_refused(cut, tmp_path, capsys):
    path = bundle(tmp_path, look("never"))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) - cut] if cut < 100 else whole[:-cut])
    assert "cannot be unpacked" in refused(path, capsys)


def test_headers_in_headers_are_refused(tmp_path, capsys):
    """Each extended header of tar is read inside the one before it."""
    nested = entry("n", tarfile.XHDTYPE)
    path = tmp_path / "nested.tar.gz"
    first = entry(INSPECTION)
    path.write_bytes(gzip.compress(first.tobuf() + nested.tobuf() * 50_000))
    refused(path, capsys)


@pytest.mark.parametrize(
    "content",
    [b"{", b"[]", b'{"schema": "unhang/node/1"}', b"[" * 5000, b'{"schema": NaN}', b"\xff\xfe"],
)
def test_documents_that_are_none_are_refused(content, tmp_path, capsys):
    error = refused(
        archive(
            tmp_path, (entry(INSPECTION), b"{}"), (entry("evidence/\x1b[31mred.json"), content)
        ),
        capsys,
    )
    assert "\x1b" not in error


def test_other_archives_are_read_as_before(tmp_path):
    plain = tmp_path / "job.log.gz"
    plain.write_bytes(gzip.compress(b"step 1\n" * 1000))
    other = archive(tmp_path, (entry("logs/rank0.log"), b"step 1"))
    assert [
        is_bundle(path)
        for path in (plain, other, tmp_path, tmp_path / "none", bundle(tmp_path, look("never")))
    ] == [False, False, False, False, True]
    assert isinstance(BROKEN, tuple)


def test_any_value_in_a_document_is_survived():
    """Each value of real documents in turn is something else."""
    chance = random.Random(35)
    strange = (None, [], {}, "x", -1, 10**30, 1.5, True, [[]], [{}], {"ranks": 1}, "\x1b[31m")
    for scene in ("never", "killed", "differ", "loader", "init", "path", "checkpoint"):
        document = look(scene)
        places = list(places_in(document))
        for path in chance.sample(places, min(len(places), 120)):
            changed = copy.deepcopy(document)
            holder = changed
            for step in path[:-1]:
                holder = holder[step]
            holder[path[-1]] = chance.choice(strange)
            found = inspection_of([changed])
            assert "\x1b" not in render_details(found), path
            assert isinstance(found["state"], str)


def places_in(value, path=()):
    for key, one in (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    ):
        yield (*path, key)
        yield from places_in(one, (*path, key))


def test_the_texts_of_a_bundle_are_those_that_were_written(tmp_path):
    texts = bundle_texts(bundle(tmp_path, look("never")))
    assert json.loads(texts["evidence/vm.json"])["schema"] == "unhang/evidence/1"
    assert sorted(texts) == [
        "evidence/vm.json",
        "inspection.json",
        "report.txt",
        "short.json",
    ]


def with_dumps(document: dict, *newest: int, name: str = "gloo:all_reduce") -> dict:
    """With a dump of each rank, which goes up to this collective."""
    changed = copy.deepcopy(document)
    changed["sections"]["log_tail"]["flights"] = [
        {"rank": rank, "pid": 1, "path": "/tmp/fr", "written_s": 1.0, "entries": [
            {"process_group": ["0", "default_pg"], "collective_seq_id": seq, "profiling_name": name,
            "state": "completed" if seq <= min(newest) else "scheduled", "input_sizes": [[8]]}
            for seq in range(1, last + 1)
        ]}
        for rank, last in enumerate(newest)
    ]  # fmt: skip
    return changed


def test_dumps_add_to_a_hang_and_never_make_one():
    found = inspection_of([with_dumps(look("never"), 6, 5)])
    assert found["state"] == "hung"
    assert (
        "by torch's flight recorder it never recorded all_reduce number 6 of group"
        " default_pg (0), which 1 rank recorded" in found["headline"] + str(found["suspects"])
    )
    for scene in ("healthy", "checkpoint", "compile", "longstep"):
        assert inspection_of([with_dumps(look(scene), 6, 5)]) == inspection_of([look(scene)])
    assert "flight" not in str(inspection_of([with_dumps(look("never"), 6, 6)]))


def test_odd_dumps_are_survived():
    for odd in (
        3,
        [3],
        [{"rank": "1"}],
        [{"rank": 0, "entries": 3}, {"rank": 1, "entries": [3, {"collective_seq_id": "x"}]}],
    ):
        document = look("never")
        document["sections"]["log_tail"]["flights"] = odd
        assert inspection_of([document])["state"] == "hung"


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda _: {"schema": "unhang/evidence/1"}, "the key collector is missing"),
        (lambda document: {**document, "ranks": "none"}, "ranks: expected"),
        (lambda document: {**document, "sections": {}}, "sections: the key ranks is missing"),
        (lambda document: {**document, "asked_as": "gpu1; touch owned"}, "asked_as: found"),
        (lambda document: {**document, "asked_as": "--become"}, "asked_as: found"),
    ],
)
def test_evidence_is_read_by_its_schema(tmp_path, capsys, change, fault):
    path = tmp_path / "sent.json"
    path.write_text(json.dumps(change(look("first"))))
    assert main(["inspect", "--evidence", str(path)]) == 2
    errors = capsys.readouterr().err
    assert fault in errors and "a fault of unhang itself" not in errors
    assert len(errors.splitlines()) == 1
