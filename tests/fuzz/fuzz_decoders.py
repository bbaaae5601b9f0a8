"""Coverage-guided fuzzing of the decoders, beside the hostile-byte suite of every test run.

    make fuzz SECONDS=60

Atheris keeps inputs that take a branch no earlier one took. That pays where bytes steer a parser
through many branches: the footer's JSON, section tables, records, texts, bitmaps. What is behind a
checksum or inside a zstd frame it would never reach, so those are undone before a change and made
right after it. Loops over varints are compiled and give it nothing to watch: the other suite has
them.

An input is four letters that name the decoder, for a blob its kind, and what is decoded.
"""

import io
import random
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit" / "blobs"))

# What Numba compiles must be the bytes that were written.
with atheris.instrument_imports(include=["puffin_ann"], exclude=["puffin_ann.blobs.kernels"]):
    import mutation
    from blob_samples import SAMPLES

    from puffin_ann.errors import FormatError
    from puffin_ann.lake import deletion_vector
    from puffin_ann.puffin import PuffinReader

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
LIMIT = 1 << 22
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None


def read_file(data: bytes) -> None:
    reader = PuffinReader(io.BytesIO(data))
    for blob in reader.metadata.blobs:
        reader.read(blob, limit=LIMIT)


def unpack(module) -> Callable[[bytes], None]:
    def run(data: bytes) -> None:
        with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
            module.unpack(io.BytesIO(data), Path(folder))

    return run


def decoder_of(module) -> Callable[[bytes], object]:
    if hasattr(module, "unpack"):
        return unpack(module)
    if hasattr(module, "decode"):
        return module.decode
    return lambda data: module.read(io.BytesIO(data))


NAMED = 4
FILE, VECTOR = b"file", b"dele"
BLOBS = {module.KIND.encode(): module for module in SAMPLES}
DECODERS: dict[bytes, Callable[[bytes], object]] = {
    FILE: read_file,
    VECTOR: deletion_vector.decode,
    **{kind: decoder_of(module) for kind, module in BLOBS.items()},
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
    except Exception:  # spoilt so far that it has no sections any more
        return which + mutation.mutate(content, rng)


@atheris.instrument_func
def decode(data: bytes) -> None:
    decoder = DECODERS.get(data[:NAMED])
    if decoder is not None:
        with suppress(FormatError):
            decoder(data[NAMED:])


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for number, seed in enumerate(seeds()):
            (Path(folder) / f"seed-{number}").write_bytes(seed)
        options = ["-max_len=100000", "-rss_limit_mb=1500", "-timeout=10", "-print_final_stats=1"]
        # The last folder is only read; what is found goes to the first, if one is given.
        arguments = [sys.argv[0], *options, *sys.argv[1:], folder]
        atheris.Setup(arguments, decode, custom_mutator=mutate)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
