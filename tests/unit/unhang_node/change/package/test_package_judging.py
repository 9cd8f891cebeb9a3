"""apt's simulation is parsed and compared with the request: values in, values out."""

from __future__ import annotations

import time

import pytest

from unhang_node.base.parse.dpkg import Package
from unhang_node.change.atomic_files import STATE_FOLDER
from unhang_node.change.package.apt.consistency import parse_unmet
from unhang_node.change.package.apt.holds import pin_stanzas_text, plan_pin
from unhang_node.change.package.apt.output import parse_fields, parse_madison, parse_simulation
from unhang_node.change.package.judging import is_met, not_offered, read_back, refusals
from unhang_node.change.package.programs import error_lines
from unhang_node.change.package.saved import merge_rows
from unhang_node.change.package.space import MIB, boot_bytes, lacking, root_bytes
from unhang_node.change.package.unit import UNWRITTEN, _await_code
from unhang_node.change.package.values import Installed, Request, Step
from unhang_node.facts.parse.apt import parse_preferences

OLD, NEW = "535.261.03-1", "535.309.01-0+deb12u1"
SIMULATED = f"""Reading package lists...
Remv nvidia-tesla-470-driver [470.256.02-1~deb12u1]
Inst libnvidia-ml1 [{OLD}] ({NEW} Debian-Security:12/oldstable-security [amd64])
Inst libnvidia-ml1:i386 [{OLD}] ({NEW} Debian-Security:12/oldstable-security [i386]) []
Inst nvidia-driver [{NEW}] ({OLD} Debian:12.13/oldstable [amd64])
Inst glx-diversions (1.2.2 Debian:12.13/oldstable [amd64])
Conf libnvidia-ml1 ({NEW} Debian-Security:12/oldstable-security [amd64])
Purg glx-alternative-mesa [1.2.2]
"""
MADISON = """nvidia-driver | 535.261.03-1 | http://mirror/debian bookworm/non-free amd64 Packages
nvidia-driver | 535.309.01-0+deb12u1 | http://mirror/debian-security bookworm-security/non-free amd64 Packages
nvidia-driver | 535.261.03-1 | http://other/debian bookworm/non-free amd64 Packages
nvidia-graphics-drivers | 535.261.03-1 | http://mirror/debian bookworm/non-free Sources
"""


def installed(held=(), ours=(), **versions):
    """Installed packages by name (_ for -)."""
    rows = {name.replace("_", "-"): version for name, version in versions.items()}
    packages = {
        name: Package(name, version, "amd64", name in held, "installed")
        for name, version in rows.items()
    }
    return Installed(packages, [], False, set(), set(ours), "amd64")


def wish(**options):
    return Request(**options)


def test_a_simulation_is_read_with_foreign_architectures_removals_and_directions():
    assert parse_simulation(SIMULATED) == [
        Step("glx-alternative-mesa", "remove", "1.2.2", None),
        Step("glx-diversions", "install", None, "1.2.2"),
        Step("libnvidia-ml1", "upgrade", OLD, NEW),
        Step("libnvidia-ml1:i386", "upgrade", OLD, NEW),
        Step("nvidia-driver", "downgrade", NEW, OLD),
        Step("nvidia-tesla-470-driver", "remove", "470.256.02-1~deb12u1", None),
    ]


def test_offers_are_newest_first_and_each_once():
    assert [row["version"] for row in parse_madison(MADISON)["nvidia-driver"]] == [NEW, OLD]
    assert "nvidia-graphics-drivers" not in parse_madison(MADISON)


def test_fields_are_read():
    assert parse_fields("Package: a\nSHA256: ab\n", ("SHA256",)) == [{"SHA256": "ab"}]
    assert parse_fields(
        "Package: a\nSize: 5\nDescription: x\n more\n\nPackage: b\n", ("Package", "Size")
    ) == [
        {"Package": "a", "Size": "5"},
        {"Package": "b", "Size": None},
    ]


def test_dependencies_that_are_not_met_are_read_one_by_one_and_other_errors_too():
    output = """Reading package lists...
You might want to run 'apt --fix-broken install' to correct these.
The following packages have unmet dependencies:
 driver-addon : Depends: nvidia-driver (= 535.309.01-1) but 535.261.03-1 is installed
                Depends: brought-tool but it is not installed
 tool-user:i386 : Breaks: x (< 2) but 1 is installed
E: Unmet dependencies. Try 'apt --fix-broken install' with no packages (or specify a solution).
"""
    assert parse_unmet(output) == [
        "driver-addon: Depends: nvidia-driver (= 535.309.01-1) but 535.261.03-1 is installed",
        "driver-addon: Depends: brought-tool but it is not installed",
        "tool-user:i386: Breaks: x (< 2) but 1 is installed",
    ]
    assert parse_unmet("E: The package x needs to be reinstalled.\n") == [
        "E: The package x needs to be reinstalled."
    ]


def test_the_telling_lines_are_taken_and_else_the_last():
    assert error_lines(
        "Get:1 http://m\ndpkg: error processing package x (--configure):\n more\nE: Sub-process"
        " returned 1\n"
    ) == [
        "dpkg: error processing package x (--configure):",
        "E: Sub-process returned 1",
    ]
    full = (
        "dpkg: error processing archive x.deb (--unpack):\n cannot copy extracted data for"
        " './opt/big': failed to write (No space left on device)\n"
    )
    assert error_lines(full)[1].endswith("failed to write (No space left on device)")
    assert error_lines("one\ntwo\nthree\nfour\n") == ["two", "three", "four"]


@pytest.mark.parametrize(
    ("options", "steps", "shown"),
    [
        ({"install": {"a": "2"}}, [Step("a", "upgrade", "1", "2")], []),
        (
            {"install": {"a": "3"}},
            [Step("a", "upgrade", "1", "2")],
            ["a would be 2 afterwards, not 3"],
        ),
        (
            {"install": {"a": "2"}, "expect": {"b": "2*"}},
            [Step("a", "upgrade", "1", "2")],
            ["b would be absent afterwards, not 2*"],
        ),
        (
            {"install": {"a": "2"}, "expect": {"b": "2*"}},
            [Step("a", "upgrade", "1", "2"), Step("b", "install", None, "2-1")],
            [],
        ),
        (
            {"install": {"a": "0"}},
            [Step("a", "downgrade", "1", "0")],
            ["a would go down from 1 to 0; allow_downgrade: true allows it"],
        ),
        ({"install": {"a": "0"}, "allow_downgrade": True}, [Step("a", "downgrade", "1", "0")], []),
        ({"remove": ["a"]}, [Step("a", "remove", "1", None)], []),
        ({"remove": ["a"]}, [], ["a would stay, and was to go"]),
        (
            {"install": {"b": ""}, "allow_remove": ["a*"]},
            [Step("a", "remove", "1", None), Step("b", "install", None, "1")],
            [],
        ),
        ({"install": {"b": "1"}}, [], ["b would be absent afterwards, not 1"]),
    ],
)
def test_what_would_come_is_held_against_what_was_asked_for(options, steps, shown):
    assert refusals(wish(**options), installed(a="1"), steps) == shown


def test_a_removal_that_nobody_asked_for_is_refused_by_name():
    (line,) = refusals(
        wish(install={"b": "1"}),
        installed(a="1"),
        [Step("a", "remove", "1", None), Step("b", "install", None, "1")],
    )
    assert line.startswith("a 1 would be removed, which was not requested")


@pytest.mark.parametrize(
    ("ours", "change_held", "shown"),
    [((), True, "not by unhang"), (("a",), False, "change_held: true"), (("a",), True, None)],
)
def test_a_hold_stops_the_change_unless_it_is_ours_and_may_move(ours, change_held, shown):
    found = refusals(
        wish(install={"a": "2"}, change_held=change_held),
        installed(a="1", held=("a",), ours=ours),
        [Step("a", "upgrade", "1", "2")],
    )
    assert (shown in found[0]) if shown else found == []


def test_what_is_not_on_offer_is_reported_with_what_is():
    offers = {"a": [{"version": "2", "origin": "x"}, {"version": "1", "origin": "x"}]}
    assert not_offered(wish(install={"a": "3"}), offers) == [
        "a 3 is not on offer; on offer are: 2, 1"
    ]
    assert not_offered(wish(install={"a": "2", "c": ""}), offers) == [
        "no repository of this node has a package c"
    ]


@pytest.mark.parametrize(
    ("options", "met"),
    [
        ({"install": {"a": "1"}}, True),
        ({"install": {"a": ""}}, False),  # what apt prefers is not known without asking it
        ({"install": {"a": "2"}}, False),
        ({"remove": ["a"]}, False),
        ({"remove": ["b"], "expect": {"a": "1*"}}, True),
        ({"expect": {"a": "2*"}}, False),
    ],
)
def test_a_request_that_is_met_takes_no_call_of_apt(options, met):
    assert is_met(wish(**options), installed(a="1")) is met


def test_pins_of_a_source_are_what_apt_reads():
    text = pin_stanzas_text([{"package": "src:nvidia-graphics-drivers", "version": "535.261.03-*"}])
    assert [(row["package"], row["pin"], row["priority"]) for row in parse_preferences(text)] == [
        ("src:nvidia-graphics-drivers", "version 535.261.03-*", 1001),
    ]
    assert pin_stanzas_text([]) is None


@pytest.mark.parametrize(
    "stanza", [{"package": "a"}, {"package": "a", "version": "1\nPin: release *"}]
)
def test_a_pin_that_is_none_is_refused(stanza):
    with pytest.raises(ValueError, match="a pin needs a package and a version"):
        pin_stanzas_text([stanza])


def test_a_file_of_pins_that_apt_would_not_read_or_that_is_somebody_elses_is_refused(tmp_path):
    for path in ("/etc/passwd", "/etc/apt/preferences.d/unhang.list"):
        with pytest.raises(ValueError, match="without a dot in its name"):
            plan_pin(str(tmp_path), path, [])
    (tmp_path / "etc/apt/preferences.d").mkdir(parents=True)
    (tmp_path / "etc/apt/preferences.d/mine").write_text(
        "Package: *\nPin: release a=stable\nPin-Priority: 900\n"
    )
    with pytest.raises(ValueError, match="somebody else wrote"):
        plan_pin(str(tmp_path), "/etc/apt/preferences.d/mine", [])


def row(name, before, after):
    return {"name": name, "architecture": "amd64", "before": before, "after": after}


def test_what_a_package_was_first_is_what_a_state_goes_back_to():
    merged = merge_rows([row("a", "1", "2")], [row("a", "2", "3"), row("b", None, "1")])
    assert merged == [row("a", "1", "3"), row("b", None, "1")]


class TestRoom:
    """How much a change takes, and whether it is there."""

    def test_a_new_kernel_takes_as_much_as_the_largest_that_is_there_and_the_rebuilt_ramdisk(self):
        steps = [Step("linux-image-6.1.0-50-amd64", "install", None, "1")]
        assert boot_bytes(steps, [8 * MIB], [30 * MIB]) == (8 + 30 + 30) * MIB
        assert boot_bytes(steps, [], []) == 100 * MIB

    def test_a_driver_rebuilds_the_ramdisk_and_other_packages_take_nothing(self):
        assert (
            boot_bytes([Step("nvidia-kernel-dkms", "upgrade", "1", "2")], [8 * MIB], [30 * MIB])
            == 30 * MIB
        )
        assert boot_bytes([Step("bash", "upgrade", "1", "2")], [8 * MIB], [30 * MIB]) == 0
        assert boot_bytes([Step("linux-image-amd64", "upgrade", "1", "2")], [8 * MIB], []) == 0

    def test_what_is_unpacked_is_counted_with_one_package_twice(self):
        steps = [Step("a", "upgrade", "1", "2"), Step("b", "install", None, "1")]
        needs = root_bytes(steps, {"a": (10, 100), "b": (5, 50)}, 80)
        assert needs == {"/usr": 100 + 50 - 80 + 100, "/var": 0, STATE_FOLDER: 15 + 40}

    def test_places_of_one_file_system_share_its_room(self):
        needs, minima = {"/usr": 300 * MIB, "/var": 300 * MIB}, {"/": 500 * MIB}
        together = {"/": (1, 1000 * MIB), "/usr": (1, 1000 * MIB), "/var": (1, 1000 * MIB)}
        (line,) = lacking(needs, together, minima)
        assert line.startswith(
            "the file system of / and /usr and /var has 1000 MiB free and needs 1100 (600 for the change, 500 to be left)"
        )
        apart = {"/": (1, 1000 * MIB), "/usr": (2, 1000 * MIB), "/var": (3, 1000 * MIB)}
        assert lacking(needs, apart, minima) == []

    def test_a_file_system_that_takes_nothing_is_not_looked_at(self):
        assert lacking({"/boot": 0}, {"/boot": (1, 0)}, {"/boot": 20 * MIB}) == []


def test_a_code_that_a_full_file_system_did_not_take_is_a_failure(tmp_path):
    (tmp_path / "code").write_text("")
    assert _await_code(str(tmp_path / "code"), lambda: True, time.monotonic() + 60, 60) == UNWRITTEN


def test_a_package_that_went_and_was_in_no_step_is_a_fault_of_the_change():
    before, done = (
        installed(nvidia_driver=OLD, site_tool="1", old_driver="1"),
        installed(nvidia_driver=NEW),
    )
    steps = [Step("nvidia-driver", "upgrade", OLD, NEW), Step("old-driver", "remove", "1", None)]
    _after, wrong, _unexpected = read_back(
        Request(install={"nvidia-driver": NEW}, remove=["old-driver"]), before, steps, done
    )
    assert wrong == ["site-tool 1 is gone, and was to stay"]


def test_what_is_read_back_is_held_against_the_steps_and_the_request():
    before = installed(nvidia_driver=OLD, glx_mesa="1.2.2")
    steps = [Step("nvidia-driver", "upgrade", OLD, NEW), Step("glx-mesa", "remove", "1.2.2", None)]
    request = wish(install={"nvidia-driver": NEW}, expect={"libcuda1": "535.*"})
    done = installed(nvidia_driver=NEW, libcuda1=NEW)
    assert read_back(request, before, steps, done) == (
        {"libcuda1": NEW, "nvidia-driver": NEW},
        [],
        [],
    )
    after, wrong, shown = read_back(request, before, steps, before)
    assert after == {"libcuda1": None, "nvidia-driver": OLD}
    assert wrong == [
        f"nvidia-driver is {OLD}, not {NEW}",
        "glx-mesa is 1.2.2, not gone",
    ]
    assert shown == ["libcuda1 would be absent afterwards, not 535.*"]
