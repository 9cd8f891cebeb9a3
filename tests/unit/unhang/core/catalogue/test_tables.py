"""Tables: each row is checked against the fields that its table declares, and every table has a
date."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from unhang.commands.catalogue import older_than
from unhang.core import catalogue
from unhang.core.catalogue.own_tables import table
from unhang.core.errors import UserError
from unhang.judge.rules.compiled_catalogue import load_catalogue
from unhang.judge.rules.row_faults import BY_A_PART_OF_THE_NAME

FIELDS = {
    "branch": {"kind": "text", "says": "the branch"},
    "eol": {"kind": "date", "says": "the last day with fixes"},
    "first": {"kind": "text", "version": "driver", "says": "the first release"},
    "type": {
        "kind": "text",
        "values": ["LTSB", "PB"],
        "says": "what kind of branch",
        "optional": True,
    },
    "links": {"kind": "number", "says": "how many", "optional": True},
    "codes": {"kind": "numbers", "says": "some codes", "optional": True},
}
ROW = {"branch": "535", "eol": "2026-06-01", "first": "535.54.03"}


def written(folder, *rows, name="own.yml", **more):
    table = {
        "title": "Branches", "key": "branch", "as_of": "2026-11-20", "confidence": "documented",
        "sources": [{"url": "u", "says": "s"}], "fields": FIELDS,
        "rows": list(rows), **more,
    }  # fmt: skip
    (folder / name).write_text(yaml.safe_dump({"tables": {"own": table}}, sort_keys=False))
    return load_catalogue([folder], built_in=False)


def test_a_row_with_all_its_fields_is_taken(tmp_path):
    catalogue = written(
        tmp_path,
        {**ROW, "type": "LTSB", "links": 4, "codes": [1, 2], "note": "n", "as_of": "2026-01-01"},
    )
    assert catalogue.faults == ()
    assert catalogue.tables["own"]["535"]["eol"] == "2026-06-01"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"eol": "2026-02-30"}, "535: eol: '2026-02-30' is no date; write it as 2026-12-31"),
        ({"eol": "June 2026"}, "535: eol: 'June 2026' is no date"),
        ({"eol": 2026}, "535: eol: 2026 is no date"),
        ({"as_of": "soon"}, "535: as_of: 'soon' is no date"),
        ({"first": "535.x"}, "535: first: '535.x' is not a driver version"),
        ({"first": 535}, "535: first: this must be a text, and is 535; write '535' in quotes"),
        ({"first": None}, "535: first: is missing"),
        (
            {"type": "LTS"},
            "535: type: 'LTS' (did you mean LTSB?) is not allowed; allowed are LTSB, PB",
        ),
        ({"codes": [1, "two"]}, "535: codes: this must be a number, and is 'two'"),
        (
            {"eof": "2026-01-01"},
            "535: eof: unknown field (did you mean eol?); the table has branch, eol",
        ),
    ],
)
def test_a_row_that_departs_from_its_fields_is_reported_with_its_line_and_left_out(
    tmp_path, change, message
):
    catalogue = written(tmp_path, {**ROW, **change}, {**ROW, "branch": "580"})
    (fault,) = catalogue.faults
    assert message in fault
    assert fault.startswith(f"{tmp_path}/own.yml:")
    assert list(catalogue.tables["own"]) == ["580"]


def test_a_table_that_is_there_twice_names_both_places(tmp_path):
    written(tmp_path, ROW)
    (fault,) = written(tmp_path, ROW, name="second.yml").faults
    assert "second.yml:2: the table own is already there at" in fault and "own.yml:2" in fault


def test_the_day_of_a_table_must_be_a_day(tmp_path):
    (fault,) = written(tmp_path, ROW, as_of="2026-13-01").faults
    assert "table own: as_of: '2026-13-01' is no date" in fault


def test_fields_give_rules_their_types(tmp_path):
    """A version needs no version_type, and a field that is spelt wrong is found before any node is
    judged."""
    rule = {
        "id": "a-rule", "title": "t", "severity": "info", "scope": "node", "expected": "e",
        "found": "f", "remedy": {"person": "look"},
        "when": "driver.loaded.version is version(tables.own['535'].first, '<')",
        "sources": [{"url": "u", "says": "s"}], "confidence": "inferred",
        "examples": {"match": [{"driver": {"loaded": {"version": "535.43.02"}}}],
        "near_miss": [{"driver": {"loaded": {"version": "535.54.03"}}}]},
    }  # fmt: skip
    (tmp_path / "rules.yml").write_text(
        json.dumps(
            {"rules": [rule, {**rule, "id": "b-rule", "when": "tables.own['535'].frist == 'x'"}]}
        )
    )
    catalogue = written(tmp_path, ROW)
    assert [one.id for one in catalogue.rules] == ["a-rule"]
    assert "frist" in catalogue.faults[0] and "did you mean first?" in catalogue.faults[0]


def test_what_is_older_than_a_day_is_listed_and_what_has_no_day_too(tmp_path):
    rows = [
        ROW,
        {**ROW, "branch": "580", "as_of": "2026-01-05"},
        {**ROW, "branch": "590", "as_of": "2026-12-24"},
    ]
    catalogue = written(tmp_path, *rows)
    assert list(older_than(catalogue.tables, "2026-11-20")) == [("own", "2026-01-05", 1)]
    assert list(older_than(catalogue.tables, "2026-11-21")) == [
        ("own", "2026-01-05", 1),
        ("own", "2026-11-20", 1),
    ]
    assert list(older_than({"plain": {"a": {}}}, "2026-01-01")) == [("plain", None, 1)]


def test_rows_of_tables_are_counted_with_their_sources(tmp_path):
    catalogue = written(
        tmp_path,
        ROW,
        {**ROW, "branch": "580", "confidence": "inferred", "sources": [{"url": "v", "says": "s"}]},
    )
    assert json.loads(json.dumps(catalogue.table_rows)) == [
        {
            "id": "own/535",
            "kind": "own",
            "confidence": "documented",
            "sources": [{"url": "u", "says": "s"}],
        },
        {
            "id": "own/580",
            "kind": "own",
            "confidence": "inferred",
            "sources": [{"url": "v", "says": "s"}],
        },
    ]


def test_one_table_through_the_door_is_what_the_whole_catalogue_has():
    tables = load_catalogue().tables
    assert {name: table(name) for name in tables} == tables


def test_a_table_that_is_not_there_is_named():
    with pytest.raises(UserError, match="there is no table no_such_table"):
        table("no_such_table")


def test_no_other_module_opens_files_of_the_catalogue():
    tools = Path(catalogue.__file__).parents[2]
    texts = {
        path.relative_to(tools).as_posix(): path.read_text()
        for path in tools.rglob("*.py")
        if path.parent.name != "catalogue"
    }
    opening = [
        name
        for name, text in texts.items()
        if re.search(r'/ "catalogue"|catalogue" /|yaml\.load\(|safe_load\(', text)
    ]
    assert opening == ["core/schemas/reading.py"]


@pytest.mark.parametrize(
    "source",
    [
        "'RTX 40' in gpus.model",
        "item.model is startswith('NVIDIA B300')",
        "gpus.devices | selectattr('model', 'like', '*B300*')",
    ],
)
def test_a_part_of_a_name_would_be_seen(source):
    assert BY_A_PART_OF_THE_NAME.search(source)
