"""A request that the site's own pins refuse, by the real apt over lists of its own: the file that
pins is found, and the reason begins with it."""

from __future__ import annotations

import shutil

import pytest
from fakes.node_tree import dpkg_status, plant
from repository import build_package, packages_index

from unhang_node.change.package.apt.change import refused_for
from unhang_node.change.package.apt.commands import PREFERENCES, simulate, update
from unhang_node.change.package.values import Refused, View

SITE, OTHER = f"{PREFERENCES}/site", f"{PREFERENCES}/other"
LIB = "Package: lib\nPin: version 1\nPin-Priority: 1001\n"
MORE = "Package: more\nPin: version 1\nPin-Priority: 1001\n"
HARMLESS = "Package: curl\nPin: version 7*\nPin-Priority: 1001\n"

pytestmark = pytest.mark.skipif(not shutil.which("apt-get"), reason="no apt here")


def view_of(tmp_path, files, fields):
    """apt on a node that has version 1 of two packages, which version 2 of a third one needs."""
    repository, folder = tmp_path / "repository", tmp_path / "view"
    repository.mkdir()
    built = [build_package(repository, "driver", "2", fields=fields)]
    built += [build_package(repository, name, v) for name in ("lib", "more") for v in ("1", "2")]
    (repository / "Packages").write_text(packages_index(built))
    names = {f"/preferences.d/{path.rpartition('/')[2]}": text for path, text in files.items()}
    plant(folder, {**names, "/lists/partial/": "", "/cache/archives/partial/": ""})
    (folder / "sources.list").write_text(f"deb [trusted=yes] file:{repository} ./\n")
    (folder / "status").write_text(dpkg_status({"lib": "1", "more": "1"}) + "\n")
    given = {"Etc::PreferencesParts": "preferences.d", "Etc::SourceList": "sources.list"}
    given |= {"State::status": "status", "State::Lists": "lists", "Cache": "cache"}
    words = [f"Dir::{name}={folder / path}" for name, path in given.items()]
    words += ["Dir::Etc::SourceParts=/dev/null", "Dir::Etc::Preferences=/dev/null"]
    words += ["APT::Sandbox::User=root"]
    view = View("/", [one for word in words for one in ("-o", word)], str(folder))
    assert update(view, 60) == []
    return view


def refused(tmp_path, files, fields="Depends: lib (= 2), more (= 2)\n"):
    view = view_of(tmp_path, files, fields)
    with pytest.raises(Refused) as problem:
        simulate(view, ["driver=2"])
    return refused_for(view, ["driver=2"], problem.value)


@pytest.mark.parametrize(
    ("files", "names"),
    [
        ({SITE: f"{LIB}\n{MORE}", OTHER: HARMLESS}, SITE),
        ({SITE: LIB, OTHER: MORE}, f"{OTHER} and {SITE}"),
    ],
)
def test_the_reason_begins_with_the_files_that_pin(tmp_path, files, names):
    why = refused(tmp_path, files)
    assert why.startswith(f"{names} pins other versions: ")
    assert " : Depends: " in why
    assert why.endswith("; apt cannot do driver=2")


def test_a_pin_that_is_not_the_reason_is_not_named(tmp_path):
    why = refused(tmp_path, {SITE: f"{LIB}\n{MORE}"}, fields="Depends: nowhere\n")
    assert "nowhere" in why
    assert "pins" not in why
