"""The vectors of a shard in the forms they are stored in, and by how much a form errs.

`float32` are the table's own. `float16` and `int8` are rounded: beside them stands, row by row, a
proven bound of the distance between a row and what is stored of it, by which a search knows which
rows it has to look up in the table. `none` are not stored at all. `docs/format.md`, section 20.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from puffin_ann.blobs.encoding import mapped
from puffin_ann.blobs.encoding.container import ContainerReader, ContainerWriter
from puffin_ann.blobs.encoding.container_layout import MINOR_FORMS
from puffin_ann.errors import BadVectorsError, BlobFormatError

Form = Literal["float32", "float16", "int8", "none"]
FORMS: tuple[Form, ...] = get_args(Form)
"""In the order of their numbers in a blob."""

FORM = np.dtype([("form", "<u4"), ("reserved", "<u4")])

VECTORS, TOLD, ERRORS, SCALES = "vecs", "vecc", "vece", "vecq"

NUMBER_BYTES = {"float32": 4, "float16": 2, "int8": 1, "none": 0}
"""Bytes of a number of a vector."""
BESIDE_BYTES = {"float32": 0, "float16": 4, "int8": 8, "none": 8}
"""Bytes of a row beside its numbers, at least: errors and scales; of lists its ordinal and bias."""

STEPS = 127
"""Steps of an `int8` number on either side of 0."""
LARGEST_HALF = 65_504.0
BLOCK_BYTES = 4 << 20


@dataclass(frozen=True, eq=False)
class Stored:
    """The form that vectors are written in, and what is known of rows that were written before.

    Attributes:
        form: of all rows.
        errors: `(m,) float32`, of the first m rows, which are as they were stored; None of none.
        scales: `(m,) float32`, of those, for `int8`.
    """

    form: Form = "float32"
    errors: NDArray[np.float32] | None = None
    scales: NDArray[np.float32] | None = None


PLAIN = Stored()


def minor_of(stored: Stored) -> int:
    """Return the minor version of a blob with vectors in a form."""
    return 0 if stored.form == "float32" else MINOR_FORMS


def least_bytes(form: Form, rows: int, dimension: int) -> int:
    """Return the fewest bytes that the blob of a shard can have: so every row is backed by some.

    A shard may have its vectors as they are, whatever the form of its index.
    """
    of_row = min(NUMBER_BYTES[form], 4) * dimension + BESIDE_BYTES[form]
    return rows * min(of_row, 4 * dimension)


def put(writer: ContainerWriter, vectors: NDArray[np.float32] | None, stored: Stored) -> None:
    """Write the sections of vectors.

    Args:
        writer: of the blob.
        vectors: `(n, d) float32`; may be memory-mapped. Not looked at where none are stored.
        stored: the form, and what is known of rows that were stored before.

    Raises:
        BadVectorsError: a number is beyond the form.
    """
    if stored.form == "float32":
        if vectors is not None:
            writer.put(VECTORS, vectors.astype("<f4", copy=False))
        return
    told = np.zeros((), FORM)
    told["form"] = FORMS.index(stored.form)
    writer.put(TOLD, told)
    if stored.form == "none" or vectors is None:
        return
    errors, scales = _begun(stored, len(vectors))
    known = 0 if stored.errors is None else len(stored.errors)
    with writer.section(VECTORS) as sink:
        for start, block in _blocks(vectors):
            part = slice(start, start + len(block))
            first = min(max(known - start, 0), len(block))
            rounded: NDArray[Any]
            if stored.form == "float16":
                rounded = _halves(block, start)
                back = rounded.astype(np.float32)
            else:
                scales[part][first:] = np.abs(block[first:]).max(axis=1, initial=0) / STEPS
                rounded = _bytes(block, scales[part])
                back = scales[part, None] * rounded.astype(np.float32)
            errors[part][first:] = _upper(block[first:], back[first:])
            sink.write_array(rounded)
    writer.put(ERRORS, errors)
    if stored.form == "int8":
        writer.put(SCALES, scales)


def _begun(stored: Stored, rows: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return `(n,)` errors and scales with those that are known."""
    found = np.zeros((2, rows), "<f4")
    for line, known in zip(found, (stored.errors, stored.scales), strict=True):
        if known is not None:
            line[: len(known)] = known
    return found[0], found[1]


def _halves(block: NDArray[np.float32], start: int) -> NDArray[np.float16]:
    beyond = ~(np.abs(block) <= LARGEST_HALF).all(axis=1)
    if beyond.any():
        row = int(beyond.argmax())
        raise BadVectorsError(
            f"vectors: float16: row {start + row} of a shard has a number of size "
            f"{float(np.abs(block[row]).max()):g}, beyond {LARGEST_HALF:g}, float16's largest; "
            "declare vectors: float32, or int8 where the algorithm takes it"
        )
    return block.astype("<f2")


def _bytes(block: NDArray[np.float32], scales: NDArray[np.float32]) -> NDArray[np.int8]:
    steps = np.where(scales > 0, scales, 1).astype(np.float64)
    return np.clip(np.rint(block / steps[:, None]), -STEPS, STEPS).astype(np.int8)


def _upper(block: NDArray[np.float32], back: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return `(b,) float32`: bounds of how far rows are from what is stored of them, 0 if not."""
    lost = block.astype(np.float64) - back
    errors = np.sqrt(np.einsum("ij,ij->i", lost, lost))
    above = np.nextafter((errors * (1 + 1e-7)).astype(np.float32), np.float32(np.inf))
    return np.where(errors > 0, above, np.float32(0)).astype(np.float32)


def _blocks(vectors: NDArray[np.float32]) -> Iterator[tuple[int, NDArray[np.float32]]]:
    step = max(1, BLOCK_BYTES // (4 * max(vectors.shape[1], 1)))
    for start in range(0, len(vectors), step):
        yield start, np.asarray(vectors[start : start + step], np.float32)


def form_of(reader: ContainerReader) -> Form:
    """Return the form of a blob's vectors.

    Raises:
        BlobFormatError: it is none that is known.
    """
    if TOLD not in reader:
        return "float32"
    number = int(reader.record(TOLD, FORM)["form"])
    if number >= len(FORMS):
        raise BlobFormatError(f"{reader.kind} blob: vectors of form {number} are not known")
    return FORMS[number]


def expect(reader: ContainerReader, form: Form, rows: int, dimension: int) -> None:
    """Hold the lengths of a blob's sections to its form, before anything is made of them.

    Raises:
        BlobFormatError: one is of another length, or is there and should not be.
    """
    wanted = {} if form == "none" else {VECTORS: NUMBER_BYTES[form] * rows * dimension}
    if form in ("float16", "int8"):
        wanted[ERRORS] = 4 * rows
    if form == "int8":
        wanted[SCALES] = 4 * rows
    for kind in (VECTORS, ERRORS, SCALES):
        if kind in wanted:
            reader.expect(kind, wanted[kind])
        elif kind in reader:
            raise BlobFormatError(
                f"{reader.kind} blob: section {kind} beside vectors of form {form}"
            )


def unpack(
    reader: ContainerReader, folder: mapped.Folder, form: Form, rows: int, dimension: int
) -> None:
    """Write a blob's vectors to a folder as float32, streaming, with their errors and scales.

    Raises:
        BlobFormatError, ChecksumError: they are not sound.
    """
    if form == "none":
        return
    scales = np.zeros(0, np.float32)
    for kind, name in ((ERRORS, "errors"), (SCALES, "scales")):
        if kind in reader and form != "float32":
            column = bounds(reader.array(kind, "<f4", (rows,)), kind, reader.kind)
            with folder.array(name, "<f4", (rows,)) as file:
                file.write(column.tobytes())
            scales = column if kind == SCALES else scales
    row_bytes = NUMBER_BYTES[form] * dimension
    step = max(1, BLOCK_BYTES // max(row_bytes, 1))
    sizes = (row_bytes * min(step, rows - start) for start in range(0, rows, step))
    at = 0
    with folder.array("vectors", "<f4", (rows, dimension)) as file:
        for piece in reader.pieces(VECTORS, sizes):
            count = len(piece) // max(row_bytes, 1)
            found = floats(piece, form, dimension, scales[at:])
            at += count
            if not np.isfinite(found).all():
                raise BlobFormatError(f"{reader.kind} blob: a vector is not finite")
            file.write(found.data.cast("B"))


def bounds(stored: bytes | NDArray[np.float32], kind: str, blob: str) -> NDArray[np.float32]:
    """Return errors or scales of rows as they are stored, `(m,) float32`.

    Raises:
        BlobFormatError: one is negative, or no number.
    """
    column = np.frombuffer(stored, "<f4")
    if not (np.isfinite(column) & (column >= 0)).all():
        raise BlobFormatError(f"{blob} blob, section {kind}: not all is 0 or more")
    return column


def floats(
    stored: bytes, form: Form, dimension: int, scales: NDArray[np.float32] | None
) -> NDArray[np.float32]:
    """Return the numbers of rows as they are stored, `(m · d,)` or `(m, d) float32`.

    Args:
        stored: whole rows.
        form: of the vectors, not `none`.
        dimension: d.
        scales: `(m,)` or longer, of those rows, for `int8`.
    """
    if form == "float32":
        return np.frombuffer(stored, "<f4")
    if form == "float16" or scales is None:
        return np.frombuffer(stored, "<f2").astype("<f4")
    steps = np.frombuffer(stored, np.int8).reshape(-1, dimension).astype("<f4")
    with np.errstate(over="ignore"):
        return steps * scales[: len(steps), None]


def known(directory: Path, form: Form = "float32") -> Stored:
    """Return what is known of the rows of an unpacked shard, to be written behind in a form.

    Raises:
        LocalCopyError: the folder does not hold a whole unpacked shard.
    """
    arrays, _ = mapped.open_folder(directory)
    errors = arrays.get("errors")
    return Stored(form, errors, arrays.get("scales")) if errors is not None else Stored(form)
