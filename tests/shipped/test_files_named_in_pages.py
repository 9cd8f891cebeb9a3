"""Names in pages: links lead to files and headings, and files, options, variables and tests that a
page names exist."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

HOME = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [
        *(path for path in HOME.glob("*.md") if path.name != "CHANGELOG.md"),
        *(HOME / "docs").rglob("*.md"),
        *(HOME / "roles").glob("*/README.md"),
    ]
)


def without_code(page: Path) -> str:
    return re.sub(
        r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )


def anchors(page: Path) -> set[str]:
    """Of its headings, as code hosts make them."""
    bare = (
        re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).strip().lower()
        for text in re.findall(r"^#+ (.*)$", without_code(page), re.MULTILINE)
    )
    return {re.sub(r"[^\w\- ]", "", text).replace(" ", "-") for text in bare}


def test_links_lead_to_files_and_headings_that_are_there():
    links = [
        (page, link)
        for page in (*PAGES, HOME / "CHANGELOG.md")
        for link in re.findall(r"\]\(([^)\s]+)\)", without_code(page))
        if not re.match(r"[a-z]+:", link)
    ]
    assert len(links) > 100
    dead = []
    for page, link in links:
        name, _, anchor = link.partition("#")
        target = Path(os.path.normpath(page.parent / name)) if name else page
        if not target.exists() or (
            anchor and target.suffix == ".md" and anchor not in anchors(target)
        ):
            dead.append(f"{page.relative_to(HOME)}: {link}")
    assert dead == []


COLUMNS = 100


def test_prose_is_at_most_100_columns_wide():
    """Tables and code are as wide as their contents, and so is a line of a single word or link."""
    wide = []
    for page in PAGES:
        for line in without_code(page).splitlines():
            if (
                len(line) > COLUMNS
                and not line.startswith(("|", "    "))
                and " " in line.strip("-* ")
            ):
                wide.append(f"{page.relative_to(HOME)}: {line}")
    assert wide == []


NOT_OURS = ("tests/fixtures/", "tests/bench/", "awx/")  # recorded lines, programs, exports


def test_a_line_of_yaml_is_wider_than_100_columns_only_where_it_cannot_be_split():
    """As the formatter and ruff hold for Python: a link or a pattern has no place for a line end."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "*.yml", "*.yaml"], cwd=HOME, capture_output=True, check=True
    ).stdout.decode()
    names = [name for name in listed.split("\0") if name and not name.startswith(NOT_OURS)]
    assert len(names) > 300
    wide = []
    for name in names:
        for number, line in enumerate((HOME / name).read_text(encoding="utf-8").splitlines(), 1):
            if len(line) > COLUMNS and re.search("[^ ] [^ ]", line[60:COLUMNS]):
                wide.append(f"{name}:{number}")
    assert wide == []


PLACES = r"(?<![\w/.-])((?:tests|tools|module_utils|plugins|library|roles|playbooks|inventory|awx|\.ci)/[\w./-]*\w)"
INVENTED = (
    "inventory/mycluster",
    "tools/unhang/judge/catalogue/rules/SECTION",
    "roles/swappiness",
)  # what a reader puts a name of his own for


def test_files_that_pages_name_are_there():
    named = {
        (page, path)
        for page in PAGES
        for path in re.findall(PLACES, page.read_text(encoding="utf-8"))
        if not path.startswith(INVENTED)
    }
    assert len(named) > 100
    assert (
        sorted(
            f"{page.relative_to(HOME)}: {path}"
            for page, path in named
            if not (HOME / path).exists()
        )
        == []
    )


WRITTEN = (
    "tools",
    "module_utils",
    "library",
    "plugins",
    "roles",
    "playbooks",
    "inventory/example",
    "inventory/demo/group_vars",
    "awx",
    "docs/monitoring",
)
# lines of logs and the code of others, in which a name may be by accident
DATA = ("jobs/catalogue/signatures", "collections/")
# a name with underscores, which is not a part of a path
SEPARATE = r"(?<![\w./-])([a-z]+(?:_[a-z0-9]+)+)(?![\w/])"
INVENTED_NAMES = (
    "swappiness", "parse_watermark_scale", "own_branches", "slurm_", "leaf_", "load_forever",
    "read_from_dead_server"
)  # fmt: skip  # of examples, a recorded job, and a site's inventory
# of setuptools, rdma-core, node-problem-detector, a Python package, SELinux, ansible.cfg
OTHERS_NAMES = (
    *("build_ext", "ibv_devices", "invoke_interval", "open_clip"),
    *("spc_t", "inject_facts_as_vars"),
)


def names_of_the_tree() -> set[str]:
    paths = [path for top in WRITTEN for path in (HOME / top).rglob("*")]
    text = (
        path
        for path in paths
        if path.suffix in (".py", ".yml", ".j2")
        and path.is_file()
        and not any(data in path.as_posix() for data in DATA)
    )
    words = {word for path in text for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))}
    return words | {path.stem for path in [*paths, *(HOME / "tests").rglob("*")]}


def test_names_in_pages_are_names_of_the_tree():
    """An option, a variable of a role, a fact, a module or a test that was renamed is found here if
    a page still has the old name."""
    known = {*names_of_the_tree(), *OTHERS_NAMES}
    texts = {page.relative_to(HOME): page.read_text(encoding="utf-8") for page in PAGES}
    named = {
        (str(page), name)
        for page, text in texts.items()
        for name in re.findall(SEPARATE, text)
        if not name.startswith(INVENTED_NAMES)
    }
    assert len(named) > 100
    # Names of metrics, and of options as inventory variables, are made of "unhang_" and a name of
    # the tree.
    assert (
        sorted(
            (page, name) for page, name in named if not {name, name.removeprefix("unhang_")} & known
        )
        == []
    )
