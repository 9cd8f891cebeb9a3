"""Puts words on the kernel's command line for the next boots: a file of ours for GRUB's generator, or grubby. Nothing is rebooted."""

from __future__ import annotations

import re

from ...root import Root
from ...sections.reading import drop_ins, line_if_there, there
from ...sections.virtualization import container_kind
from ..config.disabled_setting import write_texts
from ..config.own_files import plan_gone, plan_own, write_plan
from ..files import read_state, state_path, write_state
from ..host.command import is_there, run_program
from ..journal.running_values import Change, keep_running
from ..journal.saved_states import keep_files

DEFAULTS, FOLDER = "/etc/default/grub", "/etc/default/grub.d"
MENUS = ("/boot/grub/grub.cfg", "/boot/grub2/grub.cfg")
UPDATE_GRUB, GRUBBY = ("/usr/sbin/update-grub", "/sbin/update-grub"), ("/usr/sbin/grubby", "/sbin/grubby", "/usr/bin/grubby")
GRUBBY_FILES = (DEFAULTS, "/etc/kernel/cmdline")  # where grubby puts words for kernels to come, when all entries are changed
DEADLINE_S = 300
_WORD = re.compile(r"^[A-Za-z0-9_.,:=+/-]+$")
_SETS = re.compile(r"""^\s*(GRUB_CMDLINE_LINUX(?:_DEFAULT)?)=(['"]?)(.*)\2\s*$""")


def check_words(words):
    """Raises ValueError for what cannot stand on a kernel command line unquoted."""
    for word in words:
        if not _WORD.match(word):
            raise ValueError("expected words of a kernel command line such as iommu=pt, found {!r}".format(word))


def own_path(name):
    """Our file: its name sorts last, and _DEFAULT stands behind GRUB_CMDLINE_LINUX on the line, so that ours is what the kernel takes."""
    return "{}/zz-unhang-{}.cfg".format(FOLDER, name)


def owner_of(name):
    """Under which name it is saved what grubby was given."""
    return "host_tuning_" + name


def method_of(rootfs):
    """("grub.d" or "grubby", None), or (None, why neither can be used here)."""
    kind = container_kind(Root([rootfs]), None) if rootfs == "/" else None
    if kind:
        return None, "the kernel's command line cannot be set in a {} container: it is the host's".format(kind)
    if is_there(rootfs, *GRUBBY):
        return "grubby", None
    if is_there(rootfs, *UPDATE_GRUB) and there(Root([rootfs]), DEFAULTS):
        return "grub.d", None
    return None, "expected update-grub or grubby, found neither; add the words to the kernel's command line in the boot loader that this node has"


def others_words(rootfs, name, words):
    """Lines that say where others put another value of the same parameter: ours wins, a person may want to take theirs out."""
    root, keys, left = Root([rootfs]), {word.partition("=")[0] for word in words}, []
    for path in [DEFAULTS] + drop_ins(root, [FOLDER], ".cfg"):
        if path == own_path(name) or not there(root, path):
            continue
        for number, line in enumerate(root.text(path, 1 << 20).split("\n"), 1):
            found = _SETS.match(line)
            for word in found.group(3).split() if found else ():
                if word.partition("=")[0] in keys and word not in words:
                    left.append("{}:{}: {} stands on the command line before {}, which wins; take it out".format(path, number, word, " ".join(words)))
    return left


def missing_in_menu(rootfs, words):
    """Kernel lines of GRUB's menu, recovery entries left out, without one of the words; None where there is no menu to be read."""
    root = Root([rootfs])
    menu = next((path for path in MENUS if there(root, path)), None)
    if menu is None:
        return None
    lines = [line.split() for line in root.text(menu, 4 << 20).split("\n") if line.split()[:1] in (["linux"], ["linuxefi"], ["linux16"])]
    return sum(1 for line in lines if not {"single", "recovery"} & set(line) and not set(words) <= set(line))


def is_running_with(words):
    """True when this boot has them already."""
    return set(words) <= set((line_if_there(Root(), "/proc/cmdline") or "").split())


def plan_grub(rootfs, name, words):
    """Plan of our file."""
    line = 'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT {}"'.format(" ".join(words))
    return plan_own(rootfs, {own_path(name): [line]})._replace(left=others_words(rootfs, name, words))


def plan_without_grub(rootfs, name):
    """Plan that takes our file away."""
    return plan_gone(rootfs, owner_of(name), [own_path(name)])


def write_grub(rootfs, name, plan, absent, state_id):
    """Writes the plan and has the menu made anew; when that fails the file is put back. Raises OSError, ValueError."""
    write_plan(rootfs, owner_of(name), plan, absent, state_id, [path for path in MENUS if there(Root([rootfs]), path)])
    if rootfs != "/":
        return
    try:
        run_program(["update-grub"], DEADLINE_S)
    except (OSError, ValueError):
        write_texts(rootfs, {path: (after, before) for path, (before, after) in plan.texts.items()})
        raise


def read_entries():
    """[(kernel, its words)] of each boot entry. Raises OSError, ValueError."""
    entries, kernel = [], ""
    for line in run_program(["grubby", "--info=ALL"]).split("\n"):
        key, _, value = line.partition("=")
        if key == "kernel":
            kernel = value.strip().strip("\"'")
        elif key == "args":
            entries.append((kernel, value.strip().strip("\"'").split()))
    return entries


def read_word(word):
    """Kernels whose entries have the word; None where there is no grubby. Raises OSError, ValueError."""
    return sorted({kernel for kernel, words in read_entries() if word in words}) if is_there("/", *GRUBBY) else None


def write_word(word, kernels):
    """Has exactly the entries of these kernels carry the word. Raises OSError, ValueError."""
    for kernel in sorted({kernel for kernel, words in read_entries() if (word in words) != (kernel in kernels)}):
        run_program(["grubby", "--update-kernel=" + kernel, ("--args=" if kernel in kernels else "--remove-args=") + word], DEADLINE_S)
    found = sorted({kernel for kernel, words in read_entries() if word in words})
    if found != sorted(kernels):
        raise ValueError("grubby: expected {} on {}, found it on {}".format(word, ", ".join(kernels) or "no entry", ", ".join(found) or "no entry"))


def keep_words(rootfs, name, state_id, words, present):
    """Saves which entries have the words, and the files from which entries to come take theirs, before grubby is told."""
    root, entries = Root([rootfs]), read_entries()
    keep_files(rootfs, state_id, [state_path(owner_of(name)), *(path for path in GRUBBY_FILES if there(root, path))])
    everywhere = sorted({kernel for kernel, _words in entries})
    changes = [Change("boot_word", word, sorted({kernel for kernel, has in entries if word in has}), everywhere if present else []) for word in words]
    keep_running(rootfs, state_id, changes)


def missing_in_grubby(words):
    """Words that some entry has not."""
    entries = read_entries()
    return [word for word in words if not entries or any(word not in entry for _kernel, entry in entries)]


def add_by_grubby(rootfs, name, words, state_id):
    """Saves what is added, adds it, and reads it back. rootfs: where it is saved; grubby is the running system's."""
    keep_words(rootfs, name, state_id, words, True)
    saved = read_state(rootfs, owner_of(name))
    write_state(rootfs, owner_of(name), dict(saved, grubby=sorted(set(saved.get("grubby", [])) | set(words))))
    run_program(["grubby", "--update-kernel=ALL", "--args=" + " ".join(words)], DEADLINE_S)
    left = missing_in_grubby(words)
    if left:
        raise ValueError("grubby: expected {} on every boot entry, found an entry without after it was added".format(" ".join(left)))


def given_to_grubby(rootfs, name):
    """Words that we added, for as long as they are there."""
    return read_state(rootfs, owner_of(name)).get("grubby", [])


def remove_by_grubby(rootfs, name, words, state_id):
    """Takes exactly those away."""
    keep_words(rootfs, name, state_id, words, False)
    run_program(["grubby", "--update-kernel=ALL", "--remove-args=" + " ".join(words)], DEADLINE_S)
    write_state(rootfs, owner_of(name), {})
