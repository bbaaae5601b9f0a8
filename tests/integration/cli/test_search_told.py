"""What `search` tells beside its answers: bytes of keys that were looked up, and warnings."""

import json

import numpy as np

from puffin_ann.lake.read.data import column_chunks
from tests.support.lifecycle import builds

QUERY = np.arange(1, 1 + builds.DIMENSION, dtype=np.float32)


def search(cli, *options: str) -> tuple[int, str, str]:
    return cli("search", "test.demo.words", builds.INDEX, *options)


def test_bytes_that_were_read_to_look_a_key_up_are_told(cli, keyed, monkeypatch):
    sizes, honest = [], column_chunks.read_ranges

    def noting(io, wanted, **options):
        sizes.append(sum(part.stop - part.start for part in wanted))
        return honest(io, wanted, **options)

    monkeypatch.setattr(column_chunks, "read_ranges", noting)
    column_chunks.KEPT.clear()
    for how in (("--k", "2"), ("--within", "3")):
        sizes.clear()
        code, out, _ = search(cli, "--key", "word=w5", *how, "--explain", "--json")
        told = json.loads(out)["explanation"]["bytes_read"]
        assert (code, told["rows that keys name, of the table"]) == (0, sum(sizes))
        assert (sum(sizes) > 0) is (how[0] == "--k")  # what was read is kept in memory
    column_chunks.KEPT.clear()
    _, out, _ = search(cli, "--key", "word=w5", "--k", "2", "--explain")
    assert "── rows that keys name, of the table: " in out


def test_a_query_of_zeros_is_told_by_cosine(cli, words, tmp_path):
    builds.build(builds.declaration(metric="cosine"), "run")
    np.save(tmp_path / "q.npy", np.stack([QUERY, 0 * QUERY]))
    code, out, err = search(cli, "--vector", str(tmp_path / "q.npy"), "--k", "2", "--json")
    assert (code, json.loads(out)["queries_of_zeros"]) == (0, 1)
    assert err.count("warning: ") == 1
    assert "warning: 1 query is all zeros, without a direction: by cosine no row is nearer" in err
    np.save(tmp_path / "q.npy", QUERY)
    assert search(cli, "--vector", str(tmp_path / "q.npy"), "--k", "2", "--json")[2] == ""
