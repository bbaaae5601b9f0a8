"""Coverage-guided fuzzing of the decoders of files and blobs, beside the hostile-byte suite.

    make fuzz PART=decoders SECONDS=60

Atheris keeps inputs that take a branch no earlier one took. That pays where bytes steer a parser
through many branches: the footer's JSON, section tables, records, texts, bitmaps. What is behind a
checksum or inside a zstd frame it would never reach, so those are undone before a change and made
right after it, by the ways of that suite; its checks of what was decoded are made here, too. Loops
over varints are compiled and give coverage nothing to watch: only chance finds its way there.

An input is four letters that name the decoder, for a blob its kind, and what is decoded.
"""

import io
import random
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import atheris

from tests.support.falsified.guided_fuzzing import MEMORY, fuzz
from tests.support.paths import GOLDEN

# What Numba compiles must be the bytes that were written.
with atheris.instrument_imports(
    include=["puffin_ann"], exclude=["puffin_ann.blobs.encoding.kernels"]
):
    from puffin_ann.errors import FormatError
    from puffin_ann.lake.read.deletes import deletion_vector
    from puffin_ann.puffin import PuffinReader
    from tests.support.falsified import mutation
    from tests.support.falsified.checked_decoders import READERS

LIMIT = 1 << 22


def read_file(data: bytes) -> None:
    reader = PuffinReader(io.BytesIO(data))
    for blob in reader.metadata.blobs:
        reader.read(blob, limit=LIMIT)


def read_blob(read: Callable[[bytes, Path], object]) -> Callable[[bytes], object]:
    def run(data: bytes) -> None:
        with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
            read(data, Path(folder))

    return run


NAMED = 4
FILE, VECTOR = b"file", b"dele"
BLOBS = {module.KIND.encode(): module for module in READERS}
DECODERS: dict[bytes, Callable[[bytes], object]] = {
    FILE: read_file,
    VECTOR: deletion_vector.decode,
    **{module.KIND.encode(): read_blob(read) for module, read in READERS.items()},
}


def seeds() -> list[bytes]:
    """The golden files, and every blob in them."""
    found = [VECTOR + path.read_bytes() for path in (GOLDEN / "deletes").glob("*-index.bin")]
    found += [FILE + path.read_bytes() for path in (GOLDEN / "iceberg").glob("*.bin")]
    kinds = {module.TYPE: kind for kind, module in BLOBS.items()}
    for path in GOLDEN.glob("*.puffin"):
        data = path.read_bytes()
        reader = PuffinReader(io.BytesIO(data))
        found += [FILE + data]
        found += [
            kinds[blob.type] + reader.read(blob)
            for blob in reader.metadata.blobs
            if blob.type in kinds
        ]
    return found


def mutate(data: bytes, most: int, seed: int) -> bytes:
    """Change an input, of our blobs mostly one section, under checksums that are right again."""
    which, content = data[:NAMED], data[NAMED:]
    rng = random.Random(seed)
    if which not in BLOBS or rng.random() < 0.1:
        return which + atheris.Mutate(content, max(most - 1, 1))
    kind = BLOBS[which].KIND
    try:
        sections = mutation.sections_of(content, kind)
        if rng.random() < 0.5:
            return which + mutation.mutate_sealed(sections, kind, rng)
        name = rng.choice(list(sections))
        sections[name] = atheris.Mutate(sections[name], len(sections[name]) + 64)
        return which + mutation.assemble(sections, kind)
    except Exception:  # corrupted so far that it has no sections any more
        return which + mutation.mutate(content, rng)


def decode(data: bytes) -> None:
    decoder = DECODERS.get(data[:NAMED])
    if decoder is not None:
        with suppress(FormatError):
            decoder(data[NAMED:])


if __name__ == "__main__":
    fuzz(decode, seeds(), mutate)
