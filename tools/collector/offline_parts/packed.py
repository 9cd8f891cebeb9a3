# In unhang-offline.pyz: reads the catalogue and the schemas as JSON, which the build wrote beside the YAML that they are.
import json
from functools import lru_cache
from pathlib import Path


def with_packed_catalogue(load_yaml, package):
    """load_yaml that reads the catalogue's own files below `package` as JSON, where no value's place is kept, and any other file as YAML."""

    def load(path):
        packed = Path(f"{path}.json")
        if path.is_relative_to(package / "catalogue") and packed.is_file():
            return json.loads(packed.read_text(encoding="utf-8")), {}
        return load_yaml(path)

    return load


def packed_schemas(folder):
    """read_schema of the schemas in a folder."""
    return lru_cache(maxsize=None)(lambda name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8")))
