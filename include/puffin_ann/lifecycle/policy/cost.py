"""What work on an index is expected to take: pure, from sizes and the rates of earlier runs."""

from dataclasses import dataclass, replace

from puffin_ann.blobs.encoding.metrics import search_dimension
from puffin_ann.declaration import CENTROID, EXACT
from puffin_ann.lifecycle.policy.decision import Rates
from puffin_ann.lifecycle.policy.inputs import IndexState, ShardState

COMPARED_ROWS = 4096
"""A delta of up to about so many rows has no graph: comparing each is as fast."""

TOMBSTONE_BYTES = 2
"""Bytes of a tombstone in a bitmap, at most."""

BUILD_SECONDS = 10.0
"""What a build takes more than a refresh, however few the rows: training, gate, more submits."""

SHARD_OVERHEAD = 32
"""Bytes that tell of a shard which rows it lost, beside theirs."""

BLOB_OVERHEAD = 256
"""Bytes of a blob that holds nothing, and of its entry in the footer."""


@dataclass(frozen=True)
class Cost:
    """Expected bytes and seconds of one piece of work."""

    written: int = 0
    copied: int = 0
    seconds: float = 0.0


def row_bytes(state: IndexState) -> tuple[float, float]:
    """Return the bytes of a row in an engine's blob, and beside it."""
    rows = sum(graph.rows for graph in state.graphs)
    if rows:
        engine = sum(graph.bytes for graph in state.graphs) / rows
        beside = sum(graph.rows_bytes + graph.identity_bytes for graph in state.graphs) / rows
        return engine, beside
    return _vector_bytes(state), 28.0


def _vector_bytes(state: IndexState) -> float:
    return 4.0 * search_dimension(state.metric, state.dimension)


def untouched(state: IndexState, shard: ShardState) -> Cost:
    """Carry a shard over as it is."""
    return _kept(state, shard.all_bytes)


def _kept(state: IndexState, size: int, read: int = 0) -> Cost:
    """Keep so many bytes of blobs as they are, and read others."""
    copied = 0 if state.is_named else size
    return Cost(copied=copied, seconds=(copied + read) / state.rates.copy_bytes)


def masked(state: IndexState, shard: ShardState, deleted: int) -> Cost:
    """Write tombstones beside those there are; the rows blob is read, to find whose they are."""
    kept = _kept(state, shard.all_bytes, read=shard.rows_bytes)
    return replace(kept, written=TOMBSTONE_BYTES * deleted + SHARD_OVERHEAD)


def remapped(state: IndexState, shard: ShardState, deleted: int) -> Cost:
    """Write the rows blob again, and tombstones; rows are found again by their identities."""
    read = 2 * shard.rows_bytes + shard.identity_bytes
    kept = _kept(state, shard.all_bytes - shard.rows_bytes, read)
    return replace(kept, written=shard.rows_bytes + masked(state, shard, deleted).written)


def merged(state: IndexState, shard: ShardState, deleted: int, added: int) -> Cost:
    """Insert rows into a shard, and write all of it."""
    engine, beside = row_bytes(state)
    old = shard.made_bytes
    seconds = 2 * old / state.rates.copy_bytes
    # Without a graph a row is put in its place, not searched for.
    seconds += added / (state.rates.read if state.algorithm == EXACT else state.rates.insert)
    tombstones = 0
    if deleted or shard.tombstones:
        tombstones = shard.tombstone_bytes + TOMBSTONE_BYTES * deleted + BLOB_OVERHEAD
    return Cost(
        written=old + tombstones + round(added * (engine + beside)),
        seconds=seconds,
    )


def rebuilt(state: IndexState, shard: ShardState, rows: int) -> Cost:
    """Build a shard from so many live rows."""
    engine, beside = row_bytes(state)
    return Cost(
        written=round(rows * (engine + beside)),
        seconds=shard.made_bytes / state.rates.copy_bytes
        + rows / (state.rates.read if state.algorithm == EXACT else state.rates.build),
    )


def new_delta(state: IndexState, rows: int) -> Cost:
    """Write so many rows as a delta; few are stored without a graph."""
    engine, beside = row_bytes(state)
    if rows <= COMPARED_ROWS:
        engine = _vector_bytes(state)
    engine = max(engine, _vector_bytes(state))  # whatever form the vectors of shards have
    cell_bytes = 4
    seconds = rows * engine / state.rates.copy_bytes
    if rows > COMPARED_ROWS:
        seconds += rows / state.rates.build
    return Cost(
        written=round(rows * (engine + beside + cell_bytes)) + 2 * BLOB_OVERHEAD if rows else 0,
        seconds=seconds,
    )


def whole_build(state: IndexState, rows: int) -> Cost:
    """Build the whole index from so many rows of the table."""
    engine, beside = row_bytes(state) if state.shards else (0.0, 0.0)
    written = state.other_bytes + round(rows * (engine + beside))
    seconds = BUILD_SECONDS + rows / state.rates.read
    # Rows are staged by shard, read again, and written.
    seconds += 3 * written / state.rates.copy_bytes
    if state.shards and state.algorithm != EXACT:
        seconds += rows / state.rates.build
    return Cost(written=written, seconds=seconds)


def first_build(algorithm: str, rows: int) -> Cost:
    """Build an index of which nothing is known: not how wide its vectors are, nor their bytes."""
    rates = Rates()
    seconds = BUILD_SECONDS + rows / rates.read
    if algorithm not in (EXACT, CENTROID):
        seconds += rows / rates.build
    return Cost(seconds=seconds)


def reading(state: IndexState, rows: int) -> Cost:
    """Read and identify so many rows of the table; write what belongs to no shard."""
    return Cost(
        written=state.other_bytes,
        seconds=rows / state.rates.read + state.other_bytes / state.rates.copy_bytes,
    )
