# __main__.py of unhang-collect.pyz.
from unhang_entry import start


def load():
    """The command; imported once the entry has looked at the Python."""
    from unhang_node.facts.command import main

    return main


start("unhang-collect", load)
