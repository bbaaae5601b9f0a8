"""`vamana` against hnswlib and SymphonyQG, built and searched; `hnsw` against hnswlib, searched."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import engines
from benchmarks.data import load
from benchmarks.engines import Timed
from benchmarks.race import Contender, Curve, race, rate_at, rate_text
from benchmarks.results import Plot, Result, Row, plot

RECALLS = (0.90, 0.95, 0.99)
AGAINST_HNSWLIB = {
    "glove-100d": {0.90: (2.2, 3.1), 0.95: (2.5, 3.6), 0.99: (2.5, 3.7)},
    "gloss-384d": {0.95: (2.5, 3.9), 0.99: (3.0, 4.4)},
    "glove-20k": {0.90: (1.0, 1.0), 0.95: (1.0, 1.0), 0.99: (1.0, 1.0)},
}
AGAINST_SYMPHONY = {0.95: (0.8, 1.0), 0.99: (0.9, 1.1)}
HNSW_AGAINST_HNSWLIB = {0.95: (1.0, 1.5)}
HNSW = {"M": 16, "ef_construction": 200}
"""As the peer is built."""
DEGREES = {"glove-100d": 64, "gloss-384d": 32, "glove-20k": 32}
"""SymphonyQG's degree, the better of 32 and 64 on each set."""


def measure(name: str, rounds: int) -> Result:
    """Build and search one data set."""
    data = load(name)
    result = Result(family=f"graphs-{name}")
    with tempfile.TemporaryDirectory(prefix="bench-") as temporary:
        folder = Path(temporary)
        builds: dict[str, list[Timed]] = {"ours": [], "hnswlib": [], "symphony": []}
        made: dict[str, Any] = {}
        builders: dict[str, Callable[[], tuple[Timed, Any]]] = {
            "ours": lambda: engines.build_ours("vamana", data.vectors, folder),
            "hnswlib": lambda: engines.build_hnswlib(data.vectors),
            "symphony": lambda: engines.build_symphony(data.vectors, DEGREES[name]),
        }
        engines.build_ours("vamana", data.vectors[:5000], folder)  # compiles
        for _ in range(rounds):
            for key, build in builders.items():
                timed, made[key] = build()
                builds[key].append(timed)
        shard, _ = engines.through_blob("vamana", made["ours"], folder)
        engines.check_answers(shard, data)
        hnsw, _ = engines.through_blob(
            "hnsw", engines.build_ours("hnsw", data.vectors, folder, HNSW)[1], folder
        )
        engines.check_answers(hnsw, data)
        contenders = [
            engines.ours("vamana", shard),
            engines.hnswlib_contender(made["hnswlib"]),
            engines.symphony_contender(made["symphony"]),
            engines.ours("hnsw", hnsw),
        ]
        batch = race(contenders, data, rounds=rounds)
        single = race(contenders, data, batch=False, rounds=rounds)
    result.rows += [
        _build_row(name, data.title, builds, batch, contenders),
        *_rows(f"hnswlib-{name}", data.title, "batch", batch, contenders[1], AGAINST_HNSWLIB[name]),
        *_rows(
            f"hnsw-{name}",
            data.title,
            "batch",
            batch,
            contenders[1],
            HNSW_AGAINST_HNSWLIB,
            "hnsw",
        ),
        *_rows(f"symqg-{name}-batch", data.title, "batch", batch, contenders[2], AGAINST_SYMPHONY),
        *_rows(
            f"symqg-{name}-single",
            data.title,
            "one query a call",
            single,
            contenders[2],
            AGAINST_SYMPHONY,
        ),
    ]
    result.plots += _plots(name, data.title, batch, single)
    for key, timings in builds.items():
        wall = median(timing.wall for timing in timings)
        processor = median(timing.processor for timing in timings)
        result.facts.append(f"{data.title}: build {key} {wall:.1f} s, {processor:.1f} s of CPU")
    result.facts.append(
        f"{data.title}: the opened shard touches {shard.resident_bytes / 2**20:.0f} MiB, the "
        f"vectors alone {data.vectors.nbytes / 2**20:.0f} MiB"
    )
    return result


def _build_row(
    name: str,
    title: str,
    builds: dict[str, list[Timed]],
    curves: dict[str, Curve],
    contenders: list[Contender],
) -> Row:
    mine = median(build.wall for build in builds["ours"])
    theirs = median(build.wall for build in builds["hnswlib"])
    ratios = []
    for recall in RECALLS:
        ours, peer = (rate_at(curves[contender.name], recall) for contender in contenders[:2])
        ratios.append("–" if ours is None or peer is None else f"{ours / peer:.2f}")
    return Row(
        key=f"build-{name}",
        what=f"`vamana` build ÷ hnswlib (M 16, ef 200) build, {title}",
        ours=f"{mine:.1f} s",
        theirs=f"{theirs:.1f} s",
        measured=mine / theirs,
        least=0.50,
        aim=0.30,
        below=True,
        note=f"its queries per second ÷ hnswlib's at .90/.95/.99: {' / '.join(ratios)}",
    )


def _rows(
    key: str,
    title: str,
    how: str,
    curves: dict[str, Curve],
    peer: Contender,
    bounds: dict[float, tuple[float, float]],
    algorithm: str = "vamana",
) -> list[Row]:
    rows = []
    for recall, (least, aim) in bounds.items():
        mine = rate_at(curves[f"puffin-ann {algorithm}"], recall)
        theirs = rate_at(curves[peer.name], recall)
        rows.append(
            Row(
                key=f"{key}-{recall:.2f}",
                what=f"`{algorithm}` ÷ {peer.name}, {title}, {how}, recall@10 {recall:.2f}",
                ours=rate_text(mine),
                theirs=rate_text(theirs),
                measured=None if mine is None or theirs is None else mine / theirs,
                least=least,
                aim=aim,
            )
        )
    return rows


def _plots(name: str, title: str, batch: dict[str, Curve], single: dict[str, Curve]) -> list[Plot]:
    return [
        plot(f"graphs-{name}-batch", f"{title}, batch of 1,000", batch),
        plot(f"graphs-{name}-single", f"{title}, one query a call", single),
    ]
