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
from inspected import inspection_of, look, render_details, write_bundle
from read_again import fits

from unhang.cli import main
from unhang.core.errors import UserError
from unhang.jobs.inspect.bundle import (
    INSPECTION,
    MOST_BYTES,
    bundle_texts,
    is_bundle,
    read_documents,
)
from unhang.jobs.watch.answers import with_seen
from unhang.jobs.watch.detector import NO_PROGRESS, Event

XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=508, GPU has fallen off the bus."


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
        ("never", 3, "failure", None),
        ("differ", 1, "cause", "rank_desync_app"),
        ("loader", 1, "cause", "slow_rank_or_io"),
        ("killed", 1, "cause", "rank_failed"),
        ("stopped", 3, "failure", None),
        ("path", 3, "failure", None),
        ("healthy", 3, "no_end", None),
        ("checkpoint", 3, "no_end", None),
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
    fits(found, "diagnosis-1")
    main(["diagnose", "-v", path])
    assert said["headline"] in capsys.readouterr().out


def test_a_look_that_does_not_tell_stays_unknown(tmp_path, capsys):
    said = inspection_of([look("spin")])
    ended, found = diagnosed(capsys, str(bundle(tmp_path, look("spin"))))
    assert (said["state"], ended, found["outcome"]["word"]) == ("unknown", 3, "no_end")
    assert found["outcome"]["line"]["text"].startswith("unknown: ")
    assert "not hung" not in json.dumps(found) and "the job ran" not in json.dumps(found)


def with_log(document: dict, rank: int, *lines: str) -> dict:
    """With a log of this rank alone, which ends so."""
    changed = copy.deepcopy(document)
    pid = next(row["pid"] for row in changed["ranks"] if row["rank"] == rank)
    changed["sections"]["log_tail"]["logs"] = [
        {"pids": [pid], "path": "/home/u/rank.log", "size_bytes": 1, "changed_s": 1.0,
         "lines": ["step 3", *lines]}
    ]  # fmt: skip
    return changed


TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "/home/u/train.py", line 33, in main',
    "    batch = shards[name]",
    "KeyError: 'shard-7'",
)


@pytest.mark.parametrize(("prefix", "woke"), [("", 0), ("[rank1]: ", 3)])
def test_a_traceback_at_the_end_of_a_ranks_log_comes_before_where_it_stands(
    prefix, woke, tmp_path, capsys
):
    """Also where the rank sleeps again and again, which by itself may be work."""
    document = with_log(look("never"), 1, *(prefix + line for line in TRACEBACK))
    document["sections"]["proc"]["ranks_2"][1]["switches"] += woke
    said = inspection_of([document])
    [suspect] = said["suspects"]
    assert said["state"] == "hung" and suspect["cause"] == "rank_failed"
    assert suspect["why"].startswith(
        "its log ends with KeyError: 'shard-7' (train.py:33); it sleeps"
    )
    assert suspect["next"].startswith("the whole traceback, in /home/u/rank.log")
    _, found = diagnosed(capsys, str(bundle(tmp_path, document)))
    assert found["causes"][0]["cause"] == "rank_failed"
    assert "rank_desync_app" not in {one["cause"] for one in found["causes"]}


@pytest.mark.parametrize(
    ("between", "error"),
    [
        ("During handling of the above exception, another exception occurred:", "KeyError: 'shard"),
        ("step 4", "RuntimeError: closed by peer (train.py:40)"),
    ],
)
def test_of_a_chain_of_exceptions_the_first_is_the_cause(between, error):
    then = (
        TRACEBACK[0],
        '  File "/home/u/train.py", line 40, in main',
        "RuntimeError: closed by peer",
    )
    found = inspection_of([with_log(look("never"), 1, *TRACEBACK, "", between, "", *then)])
    assert found["suspects"][0]["why"].startswith(f"its log ends with {error}")


@pytest.mark.parametrize(("grows", "state"), [(0, "hung"), (1, "unknown")])
def test_a_rank_that_goes_on_logging_after_its_exception_is_not_called_hung(grows, state):
    """As one that tries again each few seconds."""
    document = with_log(look("never"), 1, *TRACEBACK)
    document["sections"].pop("ras")
    proc = document["sections"]["proc"]
    proc["ranks_2"][1]["switches"] += 3
    proc.update(log_bytes_1=[1, 1], log_bytes_2=[1, 1 + grows])
    assert inspection_of([document])["state"] == state


def test_a_traceback_of_another_rank_is_told_first(tmp_path):
    """RAS names rank 1, which waits for rank 0's end."""
    found = inspection_of([with_log(look("never"), 0, *TRACEBACK)])
    assert [suspect["rank"] for suspect in found["suspects"]] == [0, 1]
    assert found["headline"].startswith("rank 0 on vm: its log ends with KeyError")


@pytest.mark.parametrize("scene", ["never", "healthy"])
def test_a_traceback_that_a_program_survived_is_no_cause(scene):
    """It goes on printing after it; and a job that works is not accused for one."""
    survived = with_log(look(scene), 1, *TRACEBACK, *(f"step {at}" for at in range(4, 20)))
    assert inspection_of([survived]) == inspection_of([look(scene)])
    assert inspection_of([with_log(look("healthy"), 1, *TRACEBACK)]) == inspection_of(
        [look("healthy")]
    )


@pytest.mark.parametrize("scene", ["healthy", "checkpoint", "longstep"])
def test_dumps_of_a_job_that_ran_accuse_nobody(scene, tmp_path, capsys):
    """Each rank's dump is of another moment."""
    path = bundle(tmp_path, with_dumps(look(scene), 6, 5))
    _, found = diagnosed(capsys, str(path))
    assert [one for one in found["causes"] if one["severity"] != "info"] == []


@pytest.mark.parametrize("scene", ["never", "lock", "first", "allgather"])
def test_a_rank_that_was_seen_in_its_own_code_is_not_told_to_call_other_collectives(
    scene, tmp_path, capsys
):
    said = inspection_of([look(scene)])
    path = str(bundle(tmp_path, with_dumps(look(scene), 6, 5)))
    _, found = diagnosed(capsys, path)
    assert "rank_desync_app" not in {one["cause"] for one in found["causes"]}
    main(["diagnose", path])
    screen = " ".join(capsys.readouterr().out.split())
    assert f"hung: {said['headline'][:60]}" in screen
    assert screen.startswith("hung:")


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
    document = {**look("loader"), "asked_as": "gpu-secret-03"}
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
    assert "more than 64 MiB" in refused(path, capsys)


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


@pytest.mark.slow
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
    assert found["recorded"] == {
        "ranks": [1],
        "says": "rank 1 is waited for: 1 of 2 ranks of default_pg (0) waits in all_reduce #6; rank 1"
        " of default_pg (0) never called it",
        "beside": "agrees",
    }
    for scene in ("healthy", "checkpoint", "compile", "longstep"):
        assert inspection_of([with_dumps(look(scene), 6, 5)]) == inspection_of([look(scene)])
    assert "flight" not in str(inspection_of([with_dumps(look("never"), 6, 6)]))


@pytest.mark.parametrize("ras", [True, False])
@pytest.mark.parametrize(
    ("newest", "named"), [((), {1, 2}), ((6, 5, 6), {1}), ((5, 6, 6), {1, 2})],
    ids=["none", "one of them", "another one"],
)  # fmt: skip
def test_of_those_who_stand_elsewhere_the_one_that_dumps_name_too_is_waited_for(newest, named, ras):
    document = look("never")
    sections = document["sections"]
    third = document["ranks"][1]["pid"] + 1
    for rows in (
        document["ranks"], *(sections["proc"][f"ranks_{at}"] for at in (1, 2)),
        sections["stacks"]["processes"], sections["stacks"]["processes_2"],
    ):  # fmt: skip
        rows.append({**rows[1], "pid": third, "rank": 2, "own_pid": third})
    sections["ras"]["looks"] = sections["ras"]["looks"] if ras else []
    for row in (one["communicators"][0] for one in sections["ras"]["looks"]):
        row["members"].append([2, "127.0.0.1", third, 0])
        row["counts"][1]["ranks"].append(2)
    found = inspection_of([with_dumps(document, *newest)])
    assert found["state"] == "hung"
    assert {one["rank"] for one in found["suspects"]} == named


@pytest.mark.parametrize("scene", ["never", "loader", "killed", "lock"])
def test_a_rank_that_look_and_dumps_agree_on_is_said_once_and_the_look_comes_first(
    scene, tmp_path, capsys
):
    said = inspection_of([look(scene)])
    path = str(bundle(tmp_path, with_dumps(look(scene), 6, 5)))
    main(["diagnose", path])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"hung: {said['headline'][:60]}") and len(lines) <= 12
    text = " ".join(" ".join(lines).split())
    assert "torch's flight recorder agrees: rank 1 is waited for: 1 of 2 ranks" in text
    assert text.count("flight recorder") == 1
    _, found = diagnosed(capsys, path)
    assert [(one["source"], one["ranks"], one["agrees"]) for one in found["verdicts"]] == [
        ("unhang inspect", "1", True), ("flight recorder", "1", True),
    ]  # fmt: skip


def test_dumps_that_name_another_rank_are_one_line_behind_the_look(tmp_path, capsys):
    said = inspection_of([look("loader")])
    path = str(bundle(tmp_path, with_dumps(look("loader"), 5, 6)))
    main(["diagnose", path])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"hung: {said['headline'][:60]}")
    [differs] = [line for line in lines if "flight recorder" in line]
    assert differs.startswith("  torch's flight recorder differs: rank 0 is waited for: 1 of 2")
    _, found = diagnosed(capsys, path)
    assert [(one["ranks"], one["agrees"]) for one in found["verdicts"]] == [
        ("1", True), ("0", False),
    ]  # fmt: skip
    fits(found, "diagnosis-1")


def test_a_path_that_only_dumps_tell_apart_stays_the_verdict_of_the_look(tmp_path, capsys):
    main(["diagnose", str(bundle(tmp_path, with_dumps(look("path"), 6, 5)))])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("hung: all 2 ranks are in main")
    assert any(line.startswith("  also rank 1: by torch's flight recorder") for line in lines)


def test_dumps_given_beside_a_bundle_that_has_none_are_a_line_behind_it(tmp_path, capsys):
    dumps = []
    for row in with_dumps(look("never"), 5, 6)["sections"]["log_tail"]["flights"]:
        path = tmp_path / f"dump_{row['rank']}.json"
        path.write_text(json.dumps({"version": "2.5", "rank": row["rank"],
                                    "entries": row["entries"]}))  # fmt: skip
        dumps.append(str(path))
    main(["diagnose", str(bundle(tmp_path, look("never"))), *dumps])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("hung: rank 1 on vm: it sleeps in happen")
    assert any(one.startswith("  by the flight recorder instead: rank 0 is") for one in lines)


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
        (lambda document: {**document, "ranks": "none"}, "ranks: this must be"),
        (lambda document: {**document, "sections": {}}, "sections: the key ranks is missing"),
        (
            lambda document: {**document, "asked_as": "gpu1; touch owned"},
            "asked_as: 'gpu1; touch owned' does",
        ),
        (lambda document: {**document, "asked_as": "--become"}, "asked_as: '--become' does"),
    ],
)
def test_evidence_is_read_by_its_schema(tmp_path, capsys, change, fault):
    path = tmp_path / "sent.json"
    path.write_text(json.dumps(change(look("first"))))
    assert main(["inspect", "--evidence", str(path)]) == 2
    errors = capsys.readouterr().err
    assert fault in errors and "a fault of unhang itself" not in errors
    assert len(errors.splitlines()) == 1


def test_what_a_watcher_saw_beside_the_look_is_read_again_from_its_bundle(tmp_path):
    seen = Event(70.0, NO_PROGRESS, 10.0, "nothing moved", woken=(0,), gone={2: ("", 4711)})
    documents = with_seen([look("never")], seen)
    assert [row.get("wakes") for row in documents[0]["ranks"]] == [True, None, None]
    path = bundle(tmp_path, *documents)
    assert read_documents([path, path]) == documents  # one look, however often it is given


def test_a_document_that_no_reader_would_take_is_not_written(tmp_path):
    for number, change in enumerate(({"sees": 1}, {"pid": None}, {"has_ended": False})):
        document = look("never")
        document["ranks"][0].update(change)
        with pytest.raises(UserError, match=r"the evidence of .* is not a document unhang/evid"):
            write_bundle(tmp_path / f"{number}", [document], inspection_of([document]))
    assert list(tmp_path.iterdir()) == []
