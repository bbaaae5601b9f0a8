"""What of an index becomes another as it is published again."""

from collections.abc import Mapping
from dataclasses import dataclass

from puffin_ann.blobs.version import directory as directory_blob
from puffin_ann.blobs.version.routing import TYPE as ROUTING
from puffin_ann.lifecycle.publish.layers import Layers
from puffin_ann.puffin.metadata import BlobMetadata
from puffin_ann.puffin.reader import BlobReader
from puffin_ann.puffin.writer import PuffinWriter


@dataclass(frozen=True)
class Changed:
    """An index of which something is not published as it was.

    Attributes:
        before: its name.
    """

    before: str

    @property
    def after(self) -> str:
        """The name that it gets."""
        return self.before

    @property
    def made(self) -> Mapping[str, bytes]:
        """Its new blobs, by type; those that it had of these types are left out."""
        return {}

    def put(
        self, writer: PuffinWriter, reader: BlobReader, blob: BlobMetadata, layers: Layers
    ) -> None:
        """Add a blob of the index; with its routing the new ones, and what the layers name."""
        properties = {**blob.properties, "index": self.after}
        if blob.type not in self.made:
            writer.copy(reader, blob, properties=properties)
        if blob.type != ROUTING:
            return
        made = dict(self.made)
        if layers.directory is not None:
            made[directory_blob.TYPE] = directory_blob.encode(layers.directory)
        for kind, data in made.items():
            writer.add(
                kind,
                data,
                fields=blob.fields,
                snapshot_id=blob.snapshot_id,
                sequence_number=blob.sequence_number,
                properties=properties,
                codec="zstd",
            )


@dataclass(frozen=True)
class Renamed(Changed):
    """An index that is published under another name: `routing` is its routing blob's new bytes."""

    called: str
    routing: bytes

    @property
    def after(self) -> str:
        """The name that it gets."""
        return self.called

    @property
    def made(self) -> Mapping[str, bytes]:
        """Its routing."""
        return {ROUTING: self.routing}


@dataclass(frozen=True)
class Remade(Changed):
    """An index of which one small blob, of a type and in new bytes, takes the place of another."""

    type: str
    data: bytes

    @property
    def made(self) -> Mapping[str, bytes]:
        """That blob."""
        return {self.type: self.data}
