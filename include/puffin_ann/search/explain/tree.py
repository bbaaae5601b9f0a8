"""An explanation for people: a tree of lines."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from puffin_ann.lake.read.conditions.text import shortened
from puffin_ann.search.explain.explanation import ConditionFacts, Explanation, ShardWay, Way
from puffin_ann.wording import counted

FEW = 32
"""Of fewer queries nothing is learned from the time they take, either; see `conditions.paces`."""

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True)
class Branch:
    """A line, and what belongs below it."""

    text: str
    below: Sequence["Branch"] = ()


def tree_of(explanation: Explanation) -> Branch:
    """Return an explanation as a tree."""
    parts = [_version(explanation), _coverage(explanation)]
    if explanation.condition is not None:
        parts.append(_condition(explanation.condition))
    parts += [_index(explanation), *_scan(explanation)]
    if explanation.columns:
        names, rows = ", ".join(explanation.columns), explanation.rows_with_columns
        parts.append(Branch(f"columns fetched: {names}; of {rows} rows from the index"))
    parts.append(_bytes(explanation))
    parts.append(_times(explanation))
    return Branch(f"snapshot {explanation.snapshot}, {_time(explanation.seconds)}", parts)


def as_text(explanation: Explanation) -> str:
    """Return an explanation as a tree of lines."""
    return "\n".join(_lines(tree_of(explanation), 0))


def _lines(branch: Branch, depth: int) -> Iterator[str]:
    yield "  " * depth + branch.text
    for part in branch.below:
        yield from _lines(part, depth + 1)


def _version(told: Explanation) -> Branch:
    below = [Branch(told.why_version), *map(Branch, told.damaged)]
    if told.opening_seconds is not None:
        below.append(Branch(f"opened before the search in {_time(told.opening_seconds)}"))
    return Branch(f"version {told.version.rsplit('/', 1)[-1]}", below)


def _coverage(told: Explanation) -> Branch:
    return Branch(
        f"coverage {100 * told.coverage:.1f} %: {told.rows_covered:,} live rows of the index, "
        f"{told.rows_masked:,} of its rows masked"
    )


def _condition(told: ConditionFacts) -> Branch:
    rest = told.files - told.files_out - told.files_in - told.files_included
    below = [
        Branch(
            f"{counted(told.files, 'data file')}: by partition and statistics {told.files_out} "
            f"with no such row and {told.files_in} with such rows alone"
        ),
        Branch(
            f"{counted(rest, 'file')} opened, {told.row_groups_read} of "
            f"{counted(told.row_groups, 'row group')} read"
        ),
    ]
    if told.files_included:
        below.append(
            Branch(f"{counted(told.files_included, 'file')} decided by columns in the index")
        )
    if told.is_kept:
        below.append(Branch("known from an earlier search: nothing was read"))
    text = shortened(" ".join(line.strip() for line in told.text.splitlines()))
    return Branch(f"condition {text}: {counted(told.rows_allowed, 'row')} allowed", below)


def _index(told: Explanation) -> Branch:
    if told.files_compared is not None:
        return Branch(f"{told.algorithm}: {counted(told.files_compared, 'data file')} compared")
    below = list(map(_shard, told.shards))
    if told.ways_expected:
        ways = [Branch(text) for text in _expected(told.ways_expected)]
        title = (
            "ways through all shards, as expected; gathering and coding shared by "
            f"{told.queries_sharing} queries, half to come"
        )
        below.insert(0, Branch(title, ways))
    if any(way.estimated_seconds is not None for way in told.shards):
        below += map(Branch, _what_is_expected(told.shards))
    return Branch(f"{told.algorithm}: {_searched(told)}", below)


def _what_is_expected(ways: Sequence[ShardWay]) -> Iterator[str]:
    """Give what holds of all times expected of some ways."""
    yield (
        "expected: the time of one thread, shards in memory and kernels compiled; to open shards, "
        "to read their pages first and to wait for a processor comes beside"
    )
    if max(way.queries for way in ways) < FEW:
        yield (
            f"of fewer than {FEW} queries most may be the way there and back, which is hardly "
            "expected: several times as long is usual"
        )


def _searched(told: Explanation) -> str:
    ids = {way.shard_id for way in told.shards}
    if ids == {None}:
        return "all shards in one go"
    left_out = f", {told.shards_left_out} left out" if told.shards_left_out else ""
    return f"{counted(len(ids - {None}), 'shard')} searched{left_out}"


def _shard(way: ShardWay) -> Branch:
    if way.kind == "all":
        how = "gathered and compared" if way.way == "gathered rows" else "compared where they lie"
        parts = [f"allowed rows of all shards: {how}"]
    else:
        parts = [f"{'delta' if way.kind == 'delta' else 'shard'} {way.shard_id}: {_WAYS[way.way]}"]
    if way.width is not None:
        parts.append(f"width {way.width}")
    parts.append(counted(way.rows, "row"))
    if way.rows_allowed is not None:
        parts.append(f"{way.rows_allowed:,} allowed")
    parts.append(f"{way.queries:,} queries" if way.queries != 1 else "1 query")
    if way.seconds is not None:
        parts.append(_time(way.seconds))
    if way.way == "ranges":
        parts.append("nothing expected: the store decides")
    if way.estimated_seconds is not None:
        first = " once its pages are read" if way.is_first else ""
        parts.append(f"{_time(way.estimated_seconds)} expected{first}")
    if way.estimated_once:
        parts.append(f"{_time(way.estimated_once)} of that to gather and code rows once")
    instead = [Branch(f"instead, as expected: {text}") for text in _expected(way.instead)]
    return Branch(", ".join(parts), instead)


def _expected(ways: Mapping[Way, float]) -> Iterator[str]:
    """Give what ways were expected to take, the least first."""
    for way, seconds in sorted(ways.items(), key=lambda expected: expected[1]):
        yield f"{_WAYS[way]}, {_time(seconds)}"


_WAYS: Mapping[Way, str] = {
    "graph": "graph",
    "codes": "codes",
    "masked graph": "graph, other rows masked",
    "masked codes": "codes, other rows masked",
    "sifted graph": "graph, other rows sifted out",
    "sifted codes": "codes, other rows sifted out",
    "all rows": "all rows compared",
    "allowed rows": "allowed rows compared",
    "gathered rows": "allowed rows gathered and compared",
    "ranges": "ranges read, not on local disk",
}


def _scan(told: Explanation) -> Iterator[Branch]:
    if told.rows_scanned:
        what = f"table: {told.rows_scanned} rows of {told.files_scanned} data files scanned"
        yield Branch(what, [Branch(told.why_scanned)])
    if told.rows_left_out:
        yield Branch(f"{told.rows_left_out} rows outside the index left out, as was asked for")


def _bytes(told: Explanation) -> Branch:
    read = {what: size for what, size in told.bytes_read.items() if size}
    below = [Branch(f"{what}: {_size(size)}") for what, size in read.items()]
    return Branch(f"{_size(sum(read.values()))} read", below)


def _times(told: Explanation) -> Branch:
    below = [Branch(f"{stage.name}: {_time(stage.seconds)}") for stage in told.stages]
    return Branch(f"time {_time(told.seconds)}, by stages", below)


def _time(seconds: float) -> str:
    if seconds < 1e-4:
        return f"{1e6 * seconds:.1f} µs"
    return f"{1e3 * seconds:.2f} ms" if seconds < 1 else f"{seconds:.2f} s"


def _size(count: float) -> str:
    for unit in UNITS[:-1]:
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} {UNITS[-1]}"
