"""Ways of reading that several sections share: one value of one file, the first of several paths, the drop-in files of a configuration."""

from __future__ import annotations

from ..parse.values import clean, parse_integer


def read_line(root, path, limit=4096):
    """The one line of a file, control characters taken out. Raises OSError."""
    return clean(root.text(path, 65536), limit)


def read_integer(root, path, base=10):
    """The one number of a file. Raises OSError and ValueError."""
    return parse_integer(root.text(path, 256), base)


def line_if_there(root, path):
    """As read_line, or None where the file is missing, empty or unreadable: for files whose absence is an answer."""
    try:
        return read_line(root, path) or None
    except (OSError, ValueError):
        return None


def integer_if_there(root, path, base=10):
    """As read_integer, or None where the file is missing or holds no number."""
    try:
        return read_integer(root, path, base)
    except (OSError, ValueError):
        return None


def there(root, path):
    """True when the path was seen to exist."""
    try:
        return root.exists(path)
    except (OSError, ValueError):
        return False


def names_if_there(root, path):
    """As root.names, or [] where the folder is missing or may not be listed."""
    try:
        return root.names(path)
    except (OSError, ValueError):
        return []


def first_there(root, paths):
    """The first path that exists, or None. Raises OSError when none was seen and one could not be looked at."""
    denied = None
    for path in paths:
        try:
            if root.exists(path):
                return path
        except OSError as problem:
            denied = problem
    if denied:
        raise denied
    return None


def link_name(root, path):
    """The last part of what a symbolic link says (a driver, a subsystem), or None where there is no such link."""
    try:
        return clean(root.link(path).rstrip("/").rpartition("/")[2], 256) or None
    except (OSError, ValueError):
        return None


def drop_ins(root, folders, suffix=".conf"):
    """Paths of drop-in files in the order in which they are read: by name over all folders; of one name the earliest folder wins."""
    chosen = {}
    for folder in folders:
        for name in names_if_there(root, folder):
            if name.endswith(suffix):
                chosen.setdefault(name, folder + "/" + name)
    return [chosen[name] for name in sorted(chosen)]
