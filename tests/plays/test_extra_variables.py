"""What a variable's author did not mean as a template is none: answers to every question of a
survey, and the forms that -e has, through the playbooks."""

from __future__ import annotations

import json
import sys

import pytest
from fakes.role_play import PROJECT, answer_of, environment

TEMPLATE = "{{{{ lookup('ansible.builtin.pipe', 'touch {marker}; echo no_plan') }}}}"
# Files for -e @FILE, and words behind -e. {template} stands for a template that leaves the file
# {marker}.
FILES = {
    "a tag of Python's": 'unhang_plan: !!python/object/apply:os.system ["touch {marker}"]\n',
    "a name of Python's": "unhang_plan: !!python/object/new:subprocess.Popen [[touch, {marker}]]\n",
    "a module of Python's": "!!python/module:os {{}}\n",
    "a vault that is none": "unhang_plan: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  6162\n",
    "a tag that nobody knows": 'unhang_plan: !run "{template}"\n',
    "an anchor of unsafe text": 'a: &a !unsafe "{template}"\nunhang_plan: *a\n',
    "a merged map of unsafe text": 'a: &a {{unhang_plan: !unsafe "{template}"}}\n<<: *a\n',
    "a list of unsafe text": 'unhang_plan: [!unsafe "{template}"]\n',
}
WORDS = {
    "what a shell would run": "unhang_plan='$(touch {marker}) `touch {marker}`; touch {marker}'",
    "a statement of Python": "unhang_plan=__import__('os').system('touch {marker}')",
    "JSON that calls itself unsafe": '{{"unhang_plan": {{"__ansible_unsafe": "{template}"}}}}',
}


@pytest.fixture
def marker(tmp_path):
    """The file that a template leaves where it runs."""
    return tmp_path / "ran"


def played(folder, playbook, *arguments):
    """A finished playbook in check mode over this machine."""
    (folder / "hosts").write_text(
        f"a ansible_connection=local ansible_python_interpreter={sys.executable}\n"
    )
    argv = [
        "ansible-playbook",
        f"playbooks/{playbook}.yml",
        "-i",
        str(folder / "hosts"),
        "--check",
        *arguments,
    ]
    given = environment(folder) | {"UNHANG_RUNS": str(folder / "runs")}
    done = answer_of(argv, given)
    sys.stdout.write(done.stdout + done.stderr)
    return done


def filled(text, marker):
    return text.format(marker=marker, template=TEMPLATE.format(marker=marker))


def questions(playbook):
    """{variable: type} of the questions that a text does not answer; test_hostile_controller_inputs
    has the others."""
    spec = json.loads((PROJECT / "awx" / f"{playbook}-survey.json").read_text())["spec"]
    return {
        question["variable"]: question["type"] for question in spec if question["type"] != "text"
    }


# each is refused before the rest is read
LISTS = {
    ("remediate", name) for name, kind in questions("remediate").items() if kind == "multiselect"
}


@pytest.mark.parametrize(
    ("playbook", "alone"), [("audit", None), ("remediate", None), *sorted(LISTS)]
)
def test_an_answer_that_no_choice_allows_is_text(tmp_path, marker, playbook, alone):
    """AWX lets a person choose; whoever made the question one for a free text still hands over no
    template, because AWX makes each answer !unsafe."""
    text = f"!unsafe {json.dumps(filled('{template}', marker))}"
    asked = {
        name: kind
        for name, kind in questions(playbook).items()
        if (name == alone if alone else (playbook, name) not in LISTS)
    }
    lines = [
        f"!unsafe '{name}': {f'[{text}]' if kind == 'multiselect' else text}"
        for name, kind in asked.items()
    ]
    (tmp_path / "answers.yml").write_text("\n".join(lines) + "\n")
    done = played(tmp_path, playbook, "-e", f"@{tmp_path / 'answers.yml'}")
    assert lines and "PLAY [" in done.stdout and "Traceback" not in done.stdout + done.stderr
    assert not marker.exists()


@pytest.mark.parametrize("form", FILES)
def test_a_file_of_variables_runs_nothing(tmp_path, marker, form):
    (tmp_path / "given.yml").write_text(filled(FILES[form], marker))
    done = played(tmp_path, "remediate", "-e", f"@{tmp_path / 'given.yml'}")
    assert done.returncode != 0 and "Traceback" not in done.stdout + done.stderr
    assert not marker.exists()


@pytest.mark.parametrize("form", WORDS)
def test_a_word_without_a_template_runs_nothing(tmp_path, marker, form):
    done = played(tmp_path, "remediate", "-e", filled(WORDS[form], marker))
    assert done.returncode != 0 and "Traceback" not in done.stdout + done.stderr
    assert not marker.exists()


def test_a_template_that_an_operator_types_is_one(tmp_path, marker):
    """So what the other tests hand over would leave its file, if it were taken for a template."""
    played(tmp_path, "remediate", "-e", filled('unhang_plan="{template}"', marker))
    assert marker.exists()
