"""The declaration an index was last published by, as its routing blob records it.

It says what shapes and governs the index to users who have the table but no declarations. It has
no `spark`; versions that were published before that was left out have it, and may hold secrets.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from puffin_ann.declaration import IndexDeclaration, SparkOptions, parse_declaration
from puffin_ann.errors import DeclarationError
from puffin_ann.foreign_json import parse


@dataclass(frozen=True)
class Recorded:
    """A recorded declaration.

    Attributes:
        fields: without `spark`; empty if none is recorded, or what is cannot be read.
        secrets: names of settings of a recorded `spark` that look like secrets.
    """

    fields: Mapping[str, Any]
    secrets: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str) -> "Recorded":
        """Return what the text says: `IndexProperties.declaration`."""
        try:
            fields = parse(text)
        except ValueError:
            return cls({})
        if not isinstance(fields, dict):
            return cls({})
        spark = fields.pop("spark", None)
        try:
            secrets = SparkOptions.model_validate(spark or {}).secrets
        except ValueError:
            secrets = ()
        return cls(fields, secrets)

    @property
    def wants_statistics(self) -> bool:
        """Tell whether versions are to be published by `statistics` though tags are kept."""
        return self.fields.get("publish") == "statistics"

    def as_yaml(self) -> str:
        """Return it as a declaration file; what is as by default is left out."""
        declaration = self.declaration()
        fields: Mapping[str, Any] = self.fields
        if declaration is not None:
            fields = declaration.model_dump(mode="json", exclude_defaults=True)
        return yaml.safe_dump(dict(fields), sort_keys=False)

    def in_words(self) -> str:
        """Return in one line what shapes and governs the index."""
        declaration = self.declaration()
        if declaration is None:
            return "it records no declaration that can be read"
        one = declaration
        shards = f"{one.shards} shard{'s' if one.shards != 1 else ''}, " if one.shards_built else ""
        return (
            f"it records: column {one.column!r}, {one.metric}, {one.algorithm}, {shards}"
            f"recall {one.recall_target:g}, {one.retention.versions} versions kept"
        )

    def declaration(self) -> IndexDeclaration | None:
        """Return it as it would be declared; None if it is not valid."""
        try:
            return parse_declaration(self.fields, source="what is recorded")
        except DeclarationError:
            return None
