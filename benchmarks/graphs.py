"""`vamana` against hnswlib and SymphonyQG, built and searched; `hnsw` against hnswlib, searched."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import bytes_read, engines, symphony
from benchmarks.data import load
from benchmarks.engines import Timed
from benchmarks.race import RECALLS, Contender, Curve, race, rate_at, rate_text
from benchmarks.results import Plot, Result, Row, plot

AGAINST_HNSWLIB = dict.fromkeys(RECALLS, (4.0, 5.0))
RAW, RAW_AGAINST_HNSWLIB = ("picture-128d",), dict.fromkeys(RECALLS, (3.0, 4.0))
"""The same for sets whose rows are compared as they are, and not by their direction."""
AGAINST_SYMPHONY = dict.fromkeys(RECALLS, (1.2, 1.4))
"""In a batch."""
WIDE, WIDE_AGAINST_SYMPHONY = 384, dict.fromkeys(RECALLS, (1.0, 1.1))
"""The same from so many dimensions on."""
SINGLE_AGAINST_SYMPHONY = dict.fromkeys(RECALLS, (0.9, 1.1))
HNSW_AGAINST_HNSWLIB = {0.95: (1.0, 1.5)}
MIB = 1 << 20
HNSW = {"M": 16, "ef_construction": 200}
"""As the peer is built."""
CONNECTIONS = (16, 32)
"""hnswlib's M: the better counts at each recall."""


def measure(name: str, rounds: int) -> Result:
    """Build and search one data set."""
    data = load(name)
    result = Result(family=f"graphs-{name}")
    with tempfile.TemporaryDirectory(prefix="bench-") as temporary:
        folder = Path(temporary)
        builds: dict[str, list[Timed]] = {"ours": [], "hnswlib": []}
        made: dict[str, Any] = {}
        builders: dict[str, Callable[[], tuple[Timed, Any]]] = {
            "ours": lambda: engines.build_searchable("vamana", data.vectors, folder),
            "hnswlib": lambda: engines.build_hnswlib(data.vectors),
        }
        engines.build_searchable("vamana", data.vectors[:5000], folder)  # compiles
        for _ in range(rounds):
            for key, build in builders.items():
                timed, made[key] = build()
                builds[key].append(timed)
        shard, unpacked = made["ours"]
        engines.check_answers(shard, data)
        hnsw, _ = engines.through_blob(
            "hnsw", engines.build_ours("hnsw", data.vectors, folder, HNSW)[1], folder
        )
        engines.check_answers(hnsw, data)
        peers = [
            engines.hnswlib_contender(
                made["hnswlib"] if m == HNSW["M"] else engines.build_hnswlib(data.vectors, m)[1],
                f"hnswlib M {m}",
            )
            for m in CONNECTIONS
        ]
        qualified, told = symphony.fastest(data, rounds)
        symphonies = [one.contender for one in qualified]
        contenders = [
            engines.ours("vamana", shard),
            *peers,
            *symphonies,
            engines.ours("hnsw", hnsw),
        ]
        batch = race(contenders, data, rounds=rounds)
        single = race(contenders, data, batch=False, rounds=rounds)
        sizes: dict[int, int] = {}
        for one in qualified:
            one.index.save(str(folder / "symphony.index"))
            sizes[one.degree] = engines.size_of(folder / "symphony.index")
        is_wide = data.vectors.shape[1] >= WIDE
        bytes_lines = [_cache_row(name, data.title, engines.size_of(unpacked), sizes, is_wide)]
        if is_wide:
            both = [batch[contenders[0].name], batch[symphonies[0].name]]
            size = sizes[qualified[0].degree]
            bytes_lines += bytes_read.compare(name, data, shard, size, both)
    result.rows += [
        _build_row(name, data.title, builds, batch, contenders),
        *against(
            f"hnswlib-{name}",
            data.title,
            "batch",
            batch,
            peers,
            RAW_AGAINST_HNSWLIB if name in RAW else AGAINST_HNSWLIB,
        ),
        *against(
            f"hnsw-{name}", data.title, "batch", batch, peers[:1], HNSW_AGAINST_HNSWLIB, "hnsw"
        ),
        *against(
            f"symqg-{name}-batch",
            data.title,
            "batch",
            batch,
            symphonies,
            AGAINST_SYMPHONY if data.vectors.shape[1] < WIDE else WIDE_AGAINST_SYMPHONY,
        ),
        *against(
            f"symqg-{name}-single",
            data.title,
            "one query a call",
            single,
            symphonies,
            SINGLE_AGAINST_SYMPHONY,
        ),
        *bytes_lines,
    ]
    result.plots += _plots(name, data.title, batch, single)
    builds |= {f"SymphonyQG of degree {one.degree}": [one.timed] for one in qualified}
    result.facts.append(f"{data.title}: {told}")
    for key, timings in builds.items():
        wall = median(timing.wall for timing in timings)
        processor = median(timing.processor for timing in timings)
        result.facts.append(f"{data.title}: build {key} {wall:.1f} s, {processor:.1f} s of CPU")
    result.facts.append(
        f"{data.title}: the opened shard touches {shard.resident_bytes / MIB:.0f} MiB, the "
        f"vectors alone {data.vectors.nbytes / MIB:.0f} MiB"
    )
    return result


def _build_row(
    name: str,
    title: str,
    builds: dict[str, list[Timed]],
    curves: dict[str, Curve],
    contenders: list[Contender],
) -> Row:
    mine = median(build.processor for build in builds["ours"])
    theirs = median(build.processor for build in builds["hnswlib"])
    ratios = []
    for recall in RECALLS:
        ours, peer = (rate_at(curves[contender.name], recall) for contender in contenders[:2])
        ratios.append("–" if ours is None or peer is None else f"{ours / peer:.2f}")
    return Row(
        key=f"build-{name}",
        what=f"`vamana`, built, written and opened ÷ hnswlib (M 16, ef 200), built: CPU, {title}",
        ours=f"{mine:.1f} s",
        theirs=f"{theirs:.1f} s",
        measured=mine / theirs,
        least=0.30,
        aim=0.25,
        below=True,
        note=f"its queries per second ÷ hnswlib's at .90/.95/.99: {' / '.join(ratios)}",
    )


def _cache_row(name: str, title: str, ours: int, sizes: dict[int, int], is_wide: bool) -> Row:
    """Return the line of what is on disk; of SymphonyQG's degrees that are compared, the least."""
    degree, theirs = min(sizes.items())
    return Row(
        key=f"cache-{name}",
        what=f"files of an opened shard of `vamana` ÷ SymphonyQG's file (degree {degree}), {title}",
        ours=f"{ours / MIB:.0f} MiB",
        theirs=f"{theirs / MIB:.0f} MiB",
        measured=ours / theirs,
        least=1.0 if is_wide else 1.4,
        aim=0.8 if is_wide else 1.0,
        below=True,
    )


def against(
    key: str,
    title: str,
    how: str,
    curves: dict[str, Curve],
    peers: list[Contender],
    bounds: dict[float, tuple[float, float]],
    algorithm: str = "vamana",
) -> list[Row]:
    """Return lines that compare with the fastest of some peers, at each recall."""
    rows = []
    for recall, (least, aim) in bounds.items():
        mine = rate_at(curves[f"puffin-ann {algorithm}"], recall)
        rates = {peer.name: rate_at(curves[peer.name], recall) for peer in peers}
        best = max(rates, key=lambda name: rates[name] or 0.0)
        theirs = rates[best]
        rows.append(
            Row(
                key=f"{key}-{recall:.2f}",
                what=f"`{algorithm}` ÷ {best}, {title}, {how}, recall@10 {recall:.2f}",
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
