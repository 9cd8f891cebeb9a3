"""library/gpu_node_info.py as Ansible packs, documents and runs it."""

from __future__ import annotations

import base64
import io
import json
import re
import zipfile

import pytest
import yaml
from local_fleet import PROJECT, run

from unhang.base import project

MODULES = sorted(path.stem for path in (PROJECT / "library").glob("*.py"))
CALLBACKS = sorted(path.stem for path in (PROJECT / "plugins" / "callback").glob("*.py"))


def document(fleet, kind, name):
    """ansible-doc's content about a plugin."""
    command = [project.ansible_program("ansible-doc"), "--type", kind, "--json", name]
    done = run(command, fleet.environment(), fleet.folder)
    assert done.returncode == 0, done.stderr
    assert not done.stderr.strip()
    return next(iter(json.loads(done.stdout).values()))


@pytest.mark.parametrize("name", MODULES)
def test_ansible_doc_knows_every_module(fleet, name):
    known = document(fleet, "module", name)
    assert known["doc"]["short_description"]
    assert yaml.safe_load(known["examples"])
    assert known["return"]


@pytest.mark.parametrize("name", CALLBACKS)
def test_ansible_doc_knows_every_callback(fleet, name):
    assert document(fleet, "callback", name)["doc"]["short_description"]


def test_documentation_and_code_name_the_same_options(fleet):
    documented = document(fleet, "module", "gpu_node_info")["doc"]["options"]
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


def test_the_controllers_nvidia_ml_py_travels_with_the_module(fleet):
    names = packed_files(fleet)
    assert "ansible/module_utils/pynvml.py" in names
    assert "ansible/module_utils/unhang_node/collect.py" in names


def test_the_module_packs_without_nvidia_ml_py(fleet):
    names = packed_files(fleet, {"ANSIBLE_MODULE_UTILS": str(PROJECT / "module_utils")})
    assert "ansible/module_utils/pynvml.py" not in names
    assert "ansible/module_utils/unhang_node/collect.py" in names


def test_every_source_file_of_the_collector_travels(fleet):
    names = packed_files(fleet)
    folder = PROJECT / "module_utils"
    expected = {"ansible/module_utils/" + str(path.relative_to(folder)) for path in (folder / "unhang_node").rglob("*.py")}
    expected = {name for name in expected if "/unhang_node/change/" not in name}  # modules that change a node; they belong to other Ansible modules
    expected = {name for name in expected if "/unhang_node/job/" not in name}  # the evidence of a running job has a document of its own
    expected -= {f"ansible/module_utils/unhang_node/parse/{name}.py" for name in ("ras", "spy_stacks", "process_state")}  # and its parsers
    expected -= {"ansible/module_utils/unhang_node/parse/slurm.py"}  # used to drain a node, and on the controller
    # Comparisons of versions that the collector on a node does not need; the controller does.
    expected -= {f"ansible/module_utils/unhang_node/versions/{name}.py" for name in ("compare", "comparison", "products", "python_order")}
    expected.remove("ansible/module_utils/unhang_node/command.py")  # the command line of `unhang collect`
    assert expected <= set(names), expected - set(names)
    assert not [name for name in names if "/unhang_node/change/" in name], "what reads a node must not carry what changes one"


def test_no_file_shadows_one_of_ansibles_own():
    assert [path.name for path in (PROJECT / "module_utils").iterdir() if path.name != "__pycache__"] == ["unhang_node"]


def test_this_machine_is_read_for_real(fleet):
    fleet.host("localhost")
    done = fleet.play()
    node = fleet.nodes()["localhost"]
    assert node["status"] == "ok", (node["message"], done.stderr)
    assert node["facts"]["collector"]["collected_via"] == "ansible"
    assert node["facts"]["sections"]["node"]["probe"]["status"] == "ok"


def test_a_recorded_root_is_read_instead_of_this_machine(fleet):
    tree = fleet.folder / "tree"
    (tree / "etc").mkdir(parents=True)
    (tree / "etc" / "hostname").write_text("recorded017\n")
    (tree / "etc" / "machine-id").write_text("0123456789abcdef0123456789abcdef\n")
    fleet.host("localhost", unhang_rootfs=[str(tree)], unhang_gather_subset=["node"])
    fleet.play()
    facts = fleet.nodes()["localhost"]["facts"]
    assert facts["collector"]["recorded"] is True
    assert facts["sections"]["node"]["machine_id"] == "0123456789abcdef0123456789abcdef"


def test_an_option_that_the_module_does_not_know_is_refused_by_name(fleet):
    fleet.host("localhost", unhang_gather_subset=["no-such-section"])
    fleet.play()
    node = fleet.nodes()["localhost"]
    assert node["status"] == "failed"
    assert "no-such-section" in node["message"]
