# Replaces the judge's strict reader in unhang-quick.pyz: what this node's collector read becomes
# facts.
from types import SimpleNamespace

from unhang.core.schemas.shapes import ANY, fact_shapes


class InvalidNode(ValueError):
    """Never raised here: no file of others is read."""


def to_fragment(sections):
    """Sections as objects with every field of the schema, None where they have none."""
    return SimpleNamespace(
        **{name: typed(sections.get(name), shape) for name, shape in fact_shapes().items()}
    )


def typed(value, shape):
    """A value with the type that the strict reader gives it."""
    if value is None or shape is None:
        return value
    if shape.kind == "object":
        return SimpleNamespace(
            **{name: typed(value.get(name), below) for name, below in shape.fields.items()}
        )
    if shape.kind == "list":
        return [typed(one, shape.item or ANY) for one in value]
    if shape.kind == "map" and shape.item is not None:
        return {name: typed(one, shape.item) for name, one in value.items()}
    return value
