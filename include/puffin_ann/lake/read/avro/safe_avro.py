"""Read the records of an Avro file that may be damaged, and of their fields only those wanted.

PyIceberg's compiled decoder is fast, but trusts what it is given: a length beyond the end of a file
is read from whatever memory follows, a negative one goes back, items are counted to whatever their
number says, and a file cut off between two blocks has just ended. Here it is asked for bytes only
after it was seen that they are there, and for blocks only if they are whole.
"""

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any

from pyiceberg.avro.codecs import AVRO_CODEC_KEY
from pyiceberg.avro.decoder import BinaryDecoder, new_decoder
from pyiceberg.avro.file import META_SCHEMA, SYNC_SIZE, AvroFileHeader
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import ReadSchemaResolver, SchemaPartnerAccessor, construct_reader
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema, visit_with_partner
from pyiceberg.typedef import EMPTY_DICT, StructProtocol
from pyiceberg.types import IcebergType, ListType, MapType

from puffin_ann.lake.read.avro.blocks import Blocks
from puffin_ann.lake.read.avro.schema import check_schema
from puffin_ann.lake.store.objects import read_object

_MAGIC = b"Obj\x01"
_PADDING = bytes(16)
"""Behind the bytes to decode: where the last of them says that a number goes on, it ends there."""


def records_of(
    io: FileIO,
    path: str,
    wanted: Schema,
    types: Mapping[int, Callable[..., StructProtocol]] = EMPTY_DICT,
    enums: Mapping[int, Callable[..., Enum]] = EMPTY_DICT,
) -> Iterator[Any]:
    """Yield the records of an Avro file in a schema of ours; other fields are skipped over.

    Args:
        io: of the table.
        path: location of the file.
        wanted: fields, found by their ids; one that the file lacks is its initial default or None.
        types: what a struct is made into, by the id of its field, -1 for the record; else a Record.
        enums: what a value is made into, by the id of its field.

    Raises:
        Exception: the file is damaged. Any kind: PyIceberg trips over what no check foresees.
    """
    data = read_object(io, path)
    container = _Decoder(data)
    header: AvroFileHeader = construct_reader(META_SCHEMA, {-1: AvroFileHeader}).read(container)
    if header.magic != _MAGIC:
        raise ValueError("it does not begin as Avro files do")
    schema = header.get_schema()
    check_schema(schema)
    blocks = Blocks(header.meta.get(AVRO_CODEC_KEY, "null"), len(data))
    # Not by PyIceberg's own `resolve_reader`: its accessor knows no lists and maps left out.
    reader: Reader = visit_with_partner(  # type: ignore[misc]
        schema, wanted, ReadSchemaResolver(dict(types), dict(enums)), _Lenient()
    )
    while container.tell() < len(data):
        count, block = container.read_int(), container.read_bytes()
        if container.read(SYNC_SIZE) != header.sync:
            raise ValueError("a block does not end with the file's sync marker")
        decoder = _Decoder(blocks.content(block))
        for _ in range(count):
            record = reader.read(decoder)
            decoder.require(0)
            yield record
        if decoder.tell() != decoder.end:
            raise ValueError(f"a block has other bytes than those of its {count} records")


class _Decoder(BinaryDecoder):
    """PyIceberg's decoder, held to the bytes there are.

    Attributes:
        end: how many.
    """

    # The compiled functions themselves: they are called for every field.
    tell: Callable[[], int]
    read_int: Callable[[], int]
    skip_int: Callable[[], int]  # type: ignore[assignment]
    __slots__ = ("_read", "_skip", "end", "read_int", "skip_int", "tell")

    def __init__(self, data: bytes) -> None:
        fast = new_decoder(data + _PADDING)
        self.end = len(data)
        self.tell, self._read, self._skip = fast.tell, fast.read, fast.skip
        # It checks where a number begins, if the number is read.
        self.read_int = self.skip_int = fast.read_int

    def require(self, size: int) -> None:
        """Raise EOFError if fewer bytes are left, or a negative number of them is asked for."""
        if not 0 <= size <= self.end - self.tell():
            raise EOFError(f"{size} bytes are expected at {self.tell()} of {self.end}")

    def read(self, n: int) -> bytes:
        """Read n bytes."""
        self.require(n)
        return self._read(n)

    def read_bytes(self) -> bytes:
        """Read as many bytes as the number before them says."""
        return self.read(self.read_int())

    def skip(self, n: int) -> None:
        """Skip n bytes."""
        self.require(n)
        self._skip(n)


class _Lenient(SchemaPartnerAccessor):
    """Lets lists and maps be left out of the wanted schema, as it already does other fields."""

    def field_partner(
        self, partner: IcebergType | None, field_id: int, field_name: str
    ) -> IcebergType | None:
        return super().field_partner(partner, field_id, field_name) if partner is not None else None

    def list_element_partner(self, partner_list: IcebergType | None) -> IcebergType | None:
        return partner_list.element_type if isinstance(partner_list, ListType) else None

    def map_key_partner(self, partner_map: IcebergType | None) -> IcebergType | None:
        return partner_map.key_type if isinstance(partner_map, MapType) else None

    def map_value_partner(self, partner_map: IcebergType | None) -> IcebergType | None:
        return partner_map.value_type if isinstance(partner_map, MapType) else None
