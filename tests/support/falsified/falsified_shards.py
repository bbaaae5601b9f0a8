"""Lies of engines, of the routing, and of which blobs there are."""

import random
from dataclasses import replace

import numpy as np

from puffin_ann.blobs.encoding import strings
from puffin_ann.blobs.shards import delta, graph, rows
from puffin_ann.blobs.version import partitions, routing, tombstones
from tests.support.falsified.index_file import (
    COUNTS,
    ENGINES,
    LARGE,
    MODULES,
    PATHS,
    IndexFile,
    NotApplicable,
    lie,
    set_record,
)


def _head_of_an_engine(file: IndexFile, rng: random.Random, name: str, value) -> None:
    blob = file.some(rng, *ENGINES)
    module = graph if blob.module is delta else blob.module
    if name not in (module.HEAD.names or ()):
        raise NotApplicable
    set_record(blob, "head", module.HEAD, rng, **{name: value})


@lie
def metric_of_a_shard(file, rng):
    _head_of_an_engine(file, rng, "metric", rng.choice((0, 1, 2, 3, 4)))


@lie
def dimension_of_a_shard(file, rng):
    _head_of_an_engine(file, rng, "dimension", rng.choice(COUNTS))


@lie
def rows_of_an_engine(file, rng):
    _head_of_an_engine(file, rng, "rows", rng.choice((lambda n: n - 1, rng.choice(LARGE))))


@lie
def entry_of_a_graph(file, rng):
    _head_of_an_engine(file, rng, "entry", rng.choice(COUNTS))


@lie
def degree_of_a_graph(file, rng):
    _head_of_an_engine(file, rng, "max_degree", rng.choice((0, 1, 4096, 2**32 - 1)))


@lie
def vectors_denied(file, rng):
    blob = file.some(rng, *ENGINES)
    if blob.module in (graph, delta):
        set_record(blob, "head", graph.HEAD, rng, flags=0)
    if rng.random() < 0.5:
        del blob.sections["vecs"]


@lie
def metric_of_the_index(file, rng):
    metric = rng.choice((1, 2, 3))
    set_record(file.only(routing), "head", routing.HEAD, rng, metric=metric)
    for cells in file.all(partitions):
        set_record(cells, "head", partitions.HEAD, rng, metric=metric)


@lie
def dimension_of_the_index(file, rng):
    dimension = rng.choice((1, 7, 9, 65_536))
    values = {"dimension": dimension, "centroid_dimension": dimension}
    set_record(file.only(routing), "head", routing.HEAD, rng, **values)


@lie
def algorithm_of_the_index(file, rng):
    other = rng.choice(("vamana", "hnsw", "ivf_pq", "exact", "centroid", "auto", "annoy", "x" * 99))
    file.only(routing).sections["algo"] = strings.encode([other])


@lie
def width_of_searches(file, rng):
    set_record(file.only(routing), "head", routing.HEAD, rng, search_width=rng.choice(COUNTS))


@lie
def partitions_to_probe(file, rng):
    blob = file.only(routing)
    section, dtype = ("part", routing.APART) if "part" in blob.sections else ("head", routing.HEAD)
    set_record(blob, section, dtype, rng, probe_partitions=rng.choice((0, 1, 3, 2**32 - 1)))


@lie
def norm_bound(file, rng):
    blob = file.only(routing)
    head = blob.records("head", routing.HEAD)
    head["norm_bound"] = rng.choice((0.0, 1e-300, 1e300, -1.0, np.nan, np.inf))
    blob.sections["head"] = head.tobytes()


@lie
def rows_of_a_shard(file, rng):
    change = rng.choice((lambda n: n - 1, lambda n: n + 1, rng.choice(LARGE)))
    set_record(file.only(routing), "shrd", routing.SHARD, rng, rows=change)


@lie
def tombstones_of_a_shard(file, rng):
    change = rng.choice((lambda n: n - 1, lambda n: n + 1, rng.choice(LARGE)))
    set_record(file.only(routing), "shrd", routing.SHARD, rng, tombstones=change)


@lie
def rows_and_tombstones_of_a_shard(file, rng):
    by = rng.choice((-1, 1, 5, 10**8, 2**32, 2**62))
    by_both = {"rows": lambda n: n + by, "tombstones": lambda n: n + by}
    set_record(file.only(routing), "shrd", routing.SHARD, rng, **by_both)


@lie
def rows_from_one_shard_to_another(file, rng):
    blob = file.only(routing)
    records = blob.records("shrd", routing.SHARD)
    if len(records) < 2:
        raise NotApplicable
    one, other = rng.sample(range(len(records)), 2)
    moved = rng.choice((1, int(records["rows"][one])))
    if not moved:
        raise NotApplicable
    records["rows"][one] -= np.uint64(moved)
    records["rows"][other] += np.uint64(moved)
    blob.sections["shrd"] = records.tobytes()


@lie
def id_of_a_shard(file, rng):
    set_record(
        file.only(routing), "shrd", routing.SHARD, rng, shard_id=rng.choice((0, 1, 2, 2**32 - 1))
    )


@lie
def kind_of_a_shard(file, rng):
    set_record(file.only(routing), "shrd", routing.SHARD, rng, kind=rng.choice((0, 1, 2)))


@lie
def a_shard_left_out(file, rng):
    blob = file.only(routing)
    records = blob.records("shrd", routing.SHARD)
    files = strings.decode(blob.sections["file"], "file")
    blob.sections["shrd"] = records[:-1].tobytes()
    blob.sections["file"] = strings.encode(files[:-1])
    set_record(blob, "head", routing.HEAD, rng, shards=len(records) - 1)


@lie
def file_of_a_shard(file, rng):
    blob = file.only(routing)
    files = list(strings.decode(blob.sections["file"], "file"))
    if not files:
        raise NotApplicable
    files[rng.randrange(len(files))] = rng.choice(PATHS)
    blob.sections["file"] = strings.encode(files)


@lie
def shard_of_a_blob(file, rng):
    blob = file.some(rng, *ENGINES, rows, tombstones)
    properties = {**blob.metadata.properties, "shard": rng.choice(("0", "1", "2", "-1", "0 ", ""))}
    blob.metadata = replace(blob.metadata, properties=properties)


@lie
def index_of_a_blob(file, rng):
    blob = file.some(rng, *MODULES.values())
    other = rng.choice(("", "other", "../../x", "[/red]", "X", "a" * 1000))
    properties = {**blob.metadata.properties, "index": other}
    blob.metadata = replace(blob.metadata, properties=properties)


@lie
def a_blob_there_twice(file, rng):
    file.blobs.append(file.some(rng, *MODULES.values()))


@lie
def a_blob_that_is_missing(file, rng):
    file.blobs.remove(file.some(rng, *MODULES.values()))


@lie
def blobs_of_two_shards_exchanged(file, rng):
    """Of different lengths, or nobody could tell."""
    module = rng.choice((rows, *ENGINES))
    found = file.all(module)
    if len(found) < 2:
        raise NotApplicable
    one, other = rng.sample(found, 2)
    counts = [int(blob.records("head", _head(module))["rows"][0]) for blob in (one, other)]
    if counts[0] == counts[1]:
        raise NotApplicable
    one.sections, other.sections = other.sections, one.sections


def _head(module):
    return graph.HEAD if module is delta else module.HEAD
