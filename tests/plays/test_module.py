"""library/gpu_node_info.py as Ansible packs, documents and runs it."""

from __future__ import annotations

import base64
import io
import json
import re
import zipfile

import pytest
from local_fleet import PROJECT, run

from unhang.core.ansible import ansible_env

CALLBACKS = sorted(path.stem for path in (PROJECT / "plugins" / "callback").glob("*.py"))


def documents(fleet, kind, *names):
    """{name: ansible-doc's content about a plugin}."""
    command = [ansible_env.ansible_program("ansible-doc"), "--type", kind, "--json", *names]
    done = run(command, fleet.environment(), fleet.folder)
    assert done.returncode == 0, done.stderr
    assert not done.stderr.strip()
    return json.loads(done.stdout)


def test_ansible_doc_knows_every_callback(fleet):
    known = documents(fleet, "callback", *CALLBACKS)
    assert (
        CALLBACKS
        and [name for name in CALLBACKS if not known[name]["doc"]["short_description"]] == []
    )


def test_documentation_and_code_name_the_same_options(fleet):
    documented = documents(fleet, "module", "gpu_node_info")["gpu_node_info"]["doc"]["options"]
    source = (PROJECT / "library" / "gpu_node_info.py").read_text()
    namespace = {}
    exec(source[source.index("OPTIONS = {") : source.index("def load_pynvml")], namespace)
    assert set(documented) == set(namespace["OPTIONS"])
    for name, option in namespace["OPTIONS"].items():
        assert documented[name]["type"] == option["type"], name
        assert documented[name].get("default") == option.get("default"), name
        assert documented[name].get("choices") == option.get("choices"), name


def packed_files(fleet, environment=None):
    """Names in the zip that Ansible sends to a node."""
    seen = fleet.folder / "sent"
    fleet.interpreter("a", f"[ \"$1\" = -c ] || cat >'{seen}'\nprintf '{{}}'\n")
    fleet.play(environment=environment)
    largest = max(re.findall(r"[A-Za-z0-9+/=]{200,}", seen.read_text()), key=len)
    return zipfile.ZipFile(io.BytesIO(base64.b64decode(largest))).namelist()


def test_the_module_packs_without_nvidia_ml_py(fleet):
    names = packed_files(fleet, {"ANSIBLE_MODULE_UTILS": str(PROJECT / "module_utils")})
    assert "ansible/module_utils/pynvml.py" not in names
    assert "ansible/module_utils/unhang_node/facts/collect.py" in names


def test_every_source_file_of_the_collector_travels_and_the_controllers_nvidia_ml_py(fleet):
    names = packed_files(fleet)
    assert "ansible/module_utils/pynvml.py" in names
    assert "ansible/module_utils/unhang_node/facts/collect.py" in names
    folder = PROJECT / "module_utils"
    expected = {
        "ansible/module_utils/" + str(path.relative_to(folder))
        for path in (folder / "unhang_node").rglob("*.py")
    }
    # modules that change a node; they belong to other Ansible modules
    expected = {name for name in expected if "/unhang_node/change/" not in name}
    # the evidence of a running job has a document of its own
    expected = {name for name in expected if "/unhang_node/job/" not in name}
    # used to drain a node, and on the controller
    expected -= {  # of the controller
        "ansible/module_utils/unhang_node/base/parse/plain_pickle.py",
        "ansible/module_utils/unhang_node/base/parse/slurm.py",
    }
    # Comparisons of versions that the collector on a node does not need; the controller does.
    expected -= {
        f"ansible/module_utils/unhang_node/base/versions/{name}.py"
        for name in ("compare", "comparison", "fields", "products", "python_order")
    }
    # of `unhang collect`
    expected -= {
        f"ansible/module_utils/unhang_node/{name}.py" for name in ("facts/command", "base/program")
    }
    assert expected <= set(names), expected - set(names)
    assert not [name for name in names if "/unhang_node/change/" in name], (
        "what reads a node must not carry what changes one"
    )


def test_no_file_shadows_one_of_ansibles_own():
    assert [
        path.name for path in (PROJECT / "module_utils").iterdir() if path.name != "__pycache__"
    ] == ["unhang_node"]


@pytest.fixture(scope="module")
def nodes(shared_fleet):
    """One audit of this machine as it is, of a recorded one, and with an option at fault."""
    tree = shared_fleet.folder / "tree"
    (tree / "etc").mkdir(parents=True)
    (tree / "etc" / "hostname").write_text("recorded017\n")
    (tree / "etc" / "machine-id").write_text("0123456789abcdef0123456789abcdef\n")
    shared_fleet.host("localhost")
    shared_fleet.host("recorded", unhang_rootfs=[str(tree)], unhang_gather_subset=["node"])
    shared_fleet.host("wrong", unhang_gather_subset=["no-such-section"])
    shared_fleet.play()
    return shared_fleet.nodes()


def test_this_machine_is_read_for_real(nodes):
    node = nodes["localhost"]
    assert node["status"] == "ok", node["message"]
    assert node["facts"]["collector"]["collected_via"] == "ansible"
    assert node["facts"]["sections"]["node"]["probe"]["status"] == "ok"


def test_a_recorded_root_is_read_instead_of_this_machine(nodes):
    facts = nodes["recorded"]["facts"]
    assert facts["collector"]["recorded"] is True
    assert facts["sections"]["node"]["machine_id"] == "0123456789abcdef0123456789abcdef"


def test_an_option_that_the_module_does_not_know_is_refused_by_name(nodes):
    assert nodes["wrong"]["status"] == "failed"
    assert "no-such-section" in nodes["wrong"]["message"]
