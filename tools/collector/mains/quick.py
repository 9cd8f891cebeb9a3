# __main__.py of unhang-quick.pyz.
import sys

from unhang_entry import start

# Answers to a scheduler: a Python that is too old, or broken, must not drain a node.
FOR_SCHEDULER = any(word.split("=")[0] == "--as" for word in sys.argv) and not {
    "kubernetes",
    "--as=kubernetes",
    "--require-proof",
} & set(sys.argv)


def load():
    """The command; imported once the entry has looked at the Python."""
    from unhang_quick.command import main

    return main


start("unhang-quick", load, not_made=0 if FOR_SCHEDULER else 2)
