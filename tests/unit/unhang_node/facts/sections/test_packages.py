"""Section packages: installed, held and pinned packages, and those that an unattended upgrade would
change."""

from __future__ import annotations

import textwrap

import pytest
from fakes.node_tree import Link, assert_fits_schema, context, dpkg_status, merged, plant

from unhang_node.base.section import Unread
from unhang_node.facts.parse.apt import (
    candidate_of,
    offered_versions,
    parse_apt_conf,
    parse_preferences,
    pin_priority,
    setting_values,
    setting_word,
)
from unhang_node.facts.sections.package_database import read_database, read_rpm
from unhang_node.facts.sections.pending_upgrades import BUDGET_BYTES
from unhang_node.facts.sections.rpm_locks import read_rpm_locks
from unhang_node.facts.sources import software

UBUNTU_UNATTENDED = """
// Automatically upgrade packages from these (origin:archive) pairs
Unattended-Upgrade::Allowed-Origins {
        "${distro_id}:${distro_codename}";
        "${distro_id}:${distro_codename}-security"; // trailing
//      "${distro_id}:${distro_codename}-updates";
};
/* a block
   comment */
Unattended-Upgrade::Package-Blacklist {
    "nvidia-.*";
    "libnvidia-";
};
Unattended-Upgrade::Automatic-Reboot "true";
"""
PERIODIC = 'APT::Periodic::Update-Package-Lists "1";\nAPT::Periodic::Unattended-Upgrade "1";\n'
DRIVER = {
    "nvidia-driver-535": "535.161.08-0ubuntu2",
    "libnvidia-compute-535": "535.161.08-0ubuntu2",
    "bash": "5",
    "unattended-upgrades": "2.9",
}


def read(root):
    return merged(software.read(context(root, ["packages"])), "packages")


def test_held_driver_is_reported_as_held(tmp_path):
    root = plant(
        tmp_path,
        {
            "/var/lib/dpkg/status": dpkg_status(
                {"nvidia-driver-535": ("hold ok installed", "535.161.08-0ubuntu2"), "bash": "5"}
            )
        },
    )
    section, _unread = read(root)
    row = {
        "name": "nvidia-driver-535",
        "version": "535.161.08-0ubuntu2",
        "architecture": "amd64",
        "held": True,
        "state": "installed",
    }
    assert section["manager"] == "dpkg"
    assert section["installed"] == [row]
    assert section["holds"] == ["nvidia-driver-535"]


def test_what_a_running_dpkg_has_written_beside_the_status_file_counts(tmp_path):
    newer = (
        "Package: nvidia-driver-535\nStatus: install ok half-configured\nArchitecture:"
        " amd64\nVersion: 535.183.01\n"
    )
    root = plant(
        tmp_path,
        {
            "/var/lib/dpkg/status": dpkg_status({"nvidia-driver-535": "535.161.08"}),
            "/var/lib/dpkg/updates/0001": newer,
        },
    )
    section, _unread = read(root)
    assert [(row["version"], row["state"]) for row in section["installed"]] == [
        ("535.183.01", "half-configured")
    ]
    assert section["half_configured"] == ["nvidia-driver-535"]


def test_node_without_a_package_manager_says_none(tmp_path):
    section, _unread = read(plant(tmp_path, {"/etc/": ""}))
    assert (section["manager"], section["installed"], section["holds"]) == ("none", [], [])


def test_pins_are_reported_with_file_and_line(tmp_path):
    pin = (
        "# why\nExplanation: known good\nPackage: nvidia-driver-535 libnvidia-*\nPin: version"
        " 535.161.08*\nPin-Priority: 1001\n"
    )
    files = {
        "/etc/apt/preferences.d/nvidia.pref": pin,
        "/etc/apt/preferences.d/old.dpkg-bak": pin,
        "/etc/apt/preferences": "Package: *\nPin: release a=x\nPin-Priority: -1\n",
    }
    section, _unread = read(plant(tmp_path, {**files, "/var/lib/dpkg/status": dpkg_status(DRIVER)}))
    pinned = {
        "pin": "version 535.161.08*",
        "priority": 1001,
        "file": "/etc/apt/preferences.d/nvidia.pref",
        "line": 3,
    }
    assert section["pins"] == [
        {
            "package": "*",
            "pin": "release a=x",
            "priority": -1,
            "file": "/etc/apt/preferences",
            "line": 1,
        },
        {"package": "nvidia-driver-535", **pinned},
        {"package": "libnvidia-*", **pinned},
    ]


@pytest.mark.parametrize(
    ("files", "enabled", "covers"),
    [
        ({"/etc/apt/apt.conf.d/20auto": PERIODIC}, True, True),
        (
            {"/etc/apt/apt.conf.d/20auto": PERIODIC, "/etc/apt/apt.conf.d/50un": UBUNTU_UNATTENDED},
            True,
            False,
        ),
        ({"/etc/apt/apt.conf.d/20auto": PERIODIC.replace('"1"', '"0"')}, False, True),
        (
            {
                "/etc/apt/apt.conf.d/20auto": PERIODIC,
                "/etc/apt/apt.conf": 'APT::Periodic { Unattended-Upgrade "0"; };',
            },
            False,
            True,
        ),
        (
            {
                "/etc/apt/apt.conf.d/20auto": PERIODIC,
                "/etc/apt/apt.conf.d/99off": 'APT::Periodic::Enable "0";',
            },
            False,
            True,
        ),
        (
            {
                "/etc/apt/apt.conf.d/20auto": PERIODIC,
                "/etc/systemd/system/apt-daily-upgrade.timer": Link("/dev/null"),
            },
            False,
            True,
        ),
        ({"/etc/apt/apt.conf.d/20auto.disabled": PERIODIC}, False, True),
        ({}, False, True),
    ],
)
def test_unattended_upgrades_are_on_only_when_everything_is_on(tmp_path, files, enabled, covers):
    section, _unread = read(plant(tmp_path, {**files, "/var/lib/dpkg/status": dpkg_status(DRIVER)}))
    assert section["unattended_upgrades"]["installed"] is True
    assert (
        section["unattended_upgrades"]["enabled"],
        section["unattended_upgrades"]["covers_driver"],
    ) == (enabled, covers)


def test_held_driver_is_not_covered_by_unattended_upgrades(tmp_path):
    held = {name: ("hold ok installed", version) for name, version in DRIVER.items()}
    section, _unread = read(plant(tmp_path, {"/var/lib/dpkg/status": dpkg_status(held)}))
    assert section["unattended_upgrades"]["covers_driver"] is False


def test_blacklist_and_origins_are_reported_as_written(tmp_path):
    files = {
        "/etc/apt/apt.conf.d/50un": UBUNTU_UNATTENDED,
        "/var/lib/dpkg/status": dpkg_status(DRIVER),
    }
    unattended = read(plant(tmp_path, files))[0]["unattended_upgrades"]
    assert unattended["blacklist"] == ["nvidia-.*", "libnvidia-"]
    assert unattended["origins"] == [
        "${distro_id}:${distro_codename}",
        "${distro_id}:${distro_codename}-security",
    ]
    assert unattended["automatic_reboot"] is True


@pytest.mark.parametrize(
    ("text", "name", "values"),
    [
        ('A::B "x";', "a::b", ["x"]),
        ('A { B "x"; C { "1"; "2"; }; };', "A::C", ["1", "2"]),
        ('A:: "1"; A:: "2";', "A", ["1", "2"]),
        ('A { "1"; }; #clear A; A { "2"; };', "A", ["2"]),
        ('A "1"; A "2";', "A", ["2"]),
        ('A { "http://x/y"; }; // A { "no"; };', "A", ["http://x/y"]),
        ('# A "no";\nA "yes";', "A", ["yes"]),
        ('A { "cut', "A", []),
        ('}}}; A "x";', "A", ["x"]),
    ],
)
def test_apt_configuration_is_understood(text, name, values):
    assert setting_values(parse_apt_conf(text), name) == values


def test_word_of_a_setting_is_its_last():
    assert setting_word(parse_apt_conf('A "1";\nA "0";'), "A") == "0"


def test_broken_preferences_give_what_is_whole():
    text = textwrap.dedent("""
        Package: a
        Pin: version 1*

        Package: b
        Pin-Priority: 5

        Package: c
        Pin: version 2
         continued
        Pin-Priority: many
    """)
    assert [(row["package"], row["pin"], row["priority"]) for row in parse_preferences(text)] == [
        ("a", "version 1*", None),
        ("c", "version 2 continued", None),
    ]


@pytest.mark.parametrize(
    ("installed", "offers", "candidate"),
    [
        ("535.1", [("535.2", 500)], "535.2"),
        ("535.2", [("535.1", 500)], None),
        ("535.2", [("535.1", 1001)], "535.1"),
        ("535.1", [("535.2", -1)], None),
        ("535.1", [("535.2", 100)], "535.2"),
        ("535.1", [("535.1", 500), ("550.1", 100)], None),
        ("535.1", [("535.1", 1001), ("550.1", 500)], None),
        ("535.1", [("550.1", 500), ("545.1", 990)], "545.1"),
        ("535.1", [], None),
    ],
)
def test_candidate_is_chosen_as_apt_chooses(installed, offers, candidate):
    assert candidate_of(installed, offers) == candidate


def test_pin_that_names_the_package_wins_over_a_pattern():
    pins = [
        {"package": "nvidia-*", "pin": "version 5*", "priority": 10},
        {"package": "nvidia-x", "pin": "version 535*", "priority": 1001},
    ]
    assert pin_priority(pins, "nvidia-x", "535.1", 500) == 1001
    assert pin_priority(pins, "nvidia-y", "535.1", 500) == 10
    assert pin_priority(pins, "nvidia-x", "4", 500) == 500


LIST = """Package: nvidia-driver-535
Version: 535.183.01-0ubuntu1
Architecture: amd64

Package: nvidia-driver-535-open
Version: 9

Package: libnccl2
Version: 2.22
"""
LISTS = "/var/lib/apt/lists/archive_ubuntu_dists_jammy-updates_restricted_binary-amd64_Packages"


def test_list_is_searched_for_whole_names():
    assert offered_versions(
        LIST.encode(), frozenset(["nvidia-driver-535", "libnccl2", "nvidia"])
    ) == {
        "nvidia-driver-535": ["535.183.01-0ubuntu1"],
        "libnccl2": ["2.22"],
    }


def test_pending_upgrade_of_the_driver_is_found_in_the_lists_on_the_node(tmp_path):
    section, unread = read(
        plant(tmp_path, {"/var/lib/dpkg/status": dpkg_status(DRIVER), LISTS: LIST})
    )
    assert section["pending"] == [
        {
            "name": "nvidia-driver-535",
            "installed": "535.161.08-0ubuntu2",
            "candidate": "535.183.01-0ubuntu1",
        }
    ]
    assert unread == []


def test_pin_keeps_an_upgrade_from_pending(tmp_path):
    pin = "Package: nvidia-*\nPin: version 535.183*\nPin-Priority: -1\n"
    section, _unread = read(
        plant(
            tmp_path,
            {"/var/lib/dpkg/status": dpkg_status(DRIVER), LISTS: LIST, "/etc/apt/preferences": pin},
        )
    )
    assert section["pending"] == []


def test_backports_do_not_come_by_themselves(tmp_path):
    release = LISTS.split("_restricted_")[0] + "_InRelease"
    files = {
        LISTS: LIST,
        release: "Origin: U\nNotAutomatic: yes\n",
        "/var/lib/dpkg/status": dpkg_status(DRIVER),
    }
    assert read(plant(tmp_path, files))[0]["pending"] == []


def test_compressed_lists_are_said_to_be_unread(tmp_path):
    section, unread = read(
        plant(tmp_path, {"/var/lib/dpkg/status": dpkg_status(DRIVER), LISTS + ".lz4": "x"})
    )
    assert section["pending"] is None
    assert "compressed" in unread[0]["reason"]


def test_lists_beyond_the_budget_are_said_to_be_unread(tmp_path):
    root = plant(
        tmp_path,
        {
            "/var/lib/dpkg/status": dpkg_status(DRIVER),
            LISTS: LIST,
            LISTS.replace("restricted", "main"): "",
        },
    )
    with open(str(tmp_path) + LISTS.replace("restricted", "main"), "ab") as sparse:
        sparse.truncate(BUDGET_BYTES + 1)
    section, unread = read(root)
    assert [row["name"] for row in section["pending"]] == ["nvidia-driver-535"]
    assert str(BUDGET_BYTES) in unread[0]["reason"]


def test_node_without_driver_packages_reads_no_lists(tmp_path):
    assert (
        read(plant(tmp_path, {"/var/lib/dpkg/status": dpkg_status({"bash": "5"}), LISTS: LIST}))[0][
            "pending"
        ]
        == []
    )


def rpm_program(tmp_path, script):
    path = tmp_path / "rpm"
    path.write_text("#!/bin/sh\n" + script, encoding="utf-8")
    path.chmod(0o755)
    return str(path)


RPM_ROWS = "nvidia-driver\\t3:535.183.01-1.el9\\tx86_64\\nbash\\t0:5.1-1\\tx86_64\\nkernel-core\\t0:5.14.0-427.el9\\tx86_64\\ngpg-pubkey\\t(none):1-1\\t(none)\\n"


def test_rpm_packages_are_read_by_rpm(tmp_path):
    database = read_rpm(
        plant(tmp_path, {"/var/lib/rpm/": ""}),
        "/var/lib/rpm",
        rpm_program(tmp_path, f"printf '{RPM_ROWS}'"),
    )
    assert [(package.name, package.version) for package in database.packages] == [
        ("kernel-core", "5.14.0-427.el9"),
        ("nvidia-driver", "3:535.183.01-1.el9"),
    ]


@pytest.mark.parametrize(
    ("lock", "held"),
    [
        ("nvidia-driver-3:535.183.01-1.el9.*", True),
        ("*nvidia*535*", True),
        ("!nvidia-driver-0:550-1", False),
        ("", False),
    ],
)
def test_locked_rpm_package_is_held(tmp_path, lock, held):
    files = {"/var/lib/rpm/rpmdb.sqlite": "x", "/etc/dnf/plugins/versionlock.list": lock + "\n"}
    manager, database = read_database(
        plant(tmp_path, files), Unread(), "installed", rpm_program(tmp_path, f"printf '{RPM_ROWS}'")
    )
    assert (manager, [package.held for package in database.packages]) == ("rpm", [False, held])


def test_failing_rpm_is_reported_with_its_words(tmp_path):
    with pytest.raises(ValueError, match="ended with 3: no database"):
        read_rpm(
            plant(tmp_path, {"/var/lib/rpm/": ""}),
            "/var/lib/rpm",
            rpm_program(tmp_path, "echo no database >&2; exit 3"),
        )


def test_rpm_node_without_rpm_is_unread_and_not_empty(tmp_path):
    root, unread = plant(tmp_path, {"/var/lib/rpm/rpmdb.sqlite": "x", "/usr/": ""}), Unread()
    assert read_database(root, unread, "installed", str(tmp_path / "no-rpm")) == (None, None)
    assert "needed to read /var/lib/rpm" in unread.rows[0]["reason"]


def test_version_locks_are_holds(tmp_path):
    files = {
        "/etc/dnf/plugins/versionlock.list": (
            "# x\nnvidia-driver-3:535.183.01-1.el9.*\n!kernel-core-0:6.1-1\n*nvidia*580*\n"
        ),
        "/etc/dnf/dnf.conf": "[main]\nexclude=kernel* nvidia-*\n",
        "/etc/dnf/versionlock.toml": (
            '[[packages]]\nname = "cuda"\n[[packages.conditions]]\nkey = "evr"\ncomparator ='
            ' "="\nvalue = "12.4"\n'
        ),
        "/etc/zypp/locks": (
            "\ntype: package\nmatch_type: glob\ncase_sensitive: on\nsolvable_name: nvidia*\n"
        ),
    }
    rows = read_rpm_locks(plant(tmp_path, files), Unread())
    assert [(row["package"], row["pin"], row["line"]) for row in rows] == [
        ("nvidia-driver", "version 535.183.01-1.el9", 2),
        ("kernel-core", "not version 6.1-1", 3),
        ("*nvidia*580*", "any version", 4),
        ("cuda", "evr = 12.4", 2),
        ("nvidia*", "any version", 5),
        ("kernel*", "excluded", 2),
        ("nvidia-*", "excluded", 2),
    ]


def test_unreadable_database_is_null_with_a_reason(tmp_path):
    section, unread = read(plant(tmp_path, {"/var/lib/dpkg/status/": ""}))
    assert (section["manager"], section["installed"], section["pending"]) == (None, None, None)
    assert unread
    assert_fits_schema("packages", section, unread)
