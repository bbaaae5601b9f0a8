"""A shard of which a power failure left a file empty is not searched, whichever file that is."""

import io

import numpy as np
import pytest

from puffin_ann.ann.vamana.packed.layout import FRAME, PACKED
from puffin_ann.engines import engine
from puffin_ann.errors import LocalCopyError

MADE_AGAIN = {FRAME, PACKED}
"""What is made of the other files, whenever it is not there."""


@pytest.mark.parametrize("algorithm", ["hnsw", "ivf_pq", "vamana"])
def test_a_shard_with_an_empty_file_is_refused(algorithm, tmp_path):
    vectors = np.random.default_rng(1).standard_normal((600, 256)).astype(np.float32)
    vectors[3] = 0
    of = engine(algorithm)
    built = of.build(
        vectors,
        metric="cosine",
        parameters=of.check({}, 256),
        norm_bound=0.0,
        seed=3,
        threads=1,
        scratch=tmp_path,
    )
    blob = io.BytesIO()
    of.encode(built, blob)
    folder = tmp_path / "shard"
    folder.mkdir()
    of.unpack(io.BytesIO(blob.getvalue()), folder)
    of.open(folder)
    files = sorted(folder.glob("*.npy"))
    assert len(files) > 5
    for file in files:
        if file.name in MADE_AGAIN:
            continue
        content = file.read_bytes()
        file.write_bytes(b"")
        with pytest.raises(LocalCopyError, match="not a whole unpacked shard"):
            of.open(folder)
        file.write_bytes(content)
    for file in files:
        if file.name in MADE_AGAIN:
            file.write_bytes(b"")
    assert of.open(folder).rows == len(vectors)
