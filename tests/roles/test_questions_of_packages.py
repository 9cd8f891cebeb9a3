"""Packages that ask questions while they are changed on a booted node, where no person can
answer."""

from __future__ import annotations

import subprocess

from module_calls import call_module
from repository import APT, build_package, serve

NODE = "gpu001"
# Loads a template and asks its question with the highest priority, as a driver's package asks for a
# licence or for Secure Boot's password.
ASKS = """\
cat > /run/asking.templates <<END
Template: asking/question
Type: string
Description: Which GPU comes first?
END
. /usr/share/debconf/confmodule
db_x_loadtemplatefile /run/asking.templates asking
db_fset asking/question seen false
db_input critical asking/question || touch /run/question-skipped
db_go
db_stop
"""


def package_with_settings(folder, version):
    """A package whose configuration file differs from version to version, and whose script asks a
    question."""
    built = build_package(folder, "asking", version, postinst=ASKS)
    tree = folder / f"asking-{version}"
    (tree / "etc").mkdir()
    (tree / "etc" / "asking.conf").write_text(f"of version {version}\n")
    (tree / "DEBIAN" / "conffiles").write_text("/etc/asking.conf\n")
    subprocess.run(
        ["dpkg-deb", "--build", "--root-owner-group", "-Znone", str(tree), str(folder)],
        check=True,
        capture_output=True,
    )
    return built


def test_no_question_of_a_package_is_waited_for_and_an_admins_settings_stay(fleet, tmp_path):
    serve(fleet, NODE, [package_with_settings(tmp_path, version) for version in ("1", "2")])
    fleet.undo.callback(
        fleet.shell,
        NODE,
        "rm -f /run/asking.templates /run/question-skipped; echo PURGE | debconf-communicate asking"
        " >/dev/null",
    )
    fleet.shell(
        NODE,
        f"{APT} install asking=1; rm -f /run/question-skipped; echo of the admin >"
        " /etc/asking.conf",
    )
    state_id = call_module(fleet, NODE, "saved_state", state="begun", role="gpu_driver", run="r1")[
        "id"
    ]
    done = call_module(
        fleet,
        NODE,
        "package_change",
        install={"asking": "2"},
        state_id=state_id,
        root_free_min_mib=20,
    )
    assert done["changed"], done
    assert fleet.shell(NODE, "ls /run/question-skipped").strip(), (
        "debconf was asked, and asked nobody"
    )
    assert fleet.shell(NODE, "cat /etc/asking.conf") == "of the admin\n"
    assert call_module(fleet, NODE, "state_restore", id=state_id)["changed"]
    assert fleet.shell(
        NODE, "dpkg-query -W -f '${Version} ${db:Status-Abbrev}' asking"
    ).split() == ["1", "ii"]
    assert fleet.shell(NODE, "cat /etc/asking.conf") == "of the admin\n"
