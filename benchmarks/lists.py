"""`ivf_pq`, loaded from its blob, against the IVF indexes of faiss and of rabitqlib."""

import tempfile
from pathlib import Path

from benchmarks import engines
from benchmarks.data import load
from benchmarks.list_peers import CLUSTERS, FACTORIES, MANY_CLUSTERS, build_faiss, build_rabitq
from benchmarks.race import RECALLS, Contender, Curve, race, rate_at, rate_text
from benchmarks.results import Result, Row, plot

BOUNDS = {"batch": (1.3, 1.6), "one query a call": (1.3, 1.6)}
PEERS = {"ivf": "faiss's fastest IVF with refinement", "rabitq": "rabitqlib's IVF"}
"""By the beginning of a line's key."""


def measure(name: str, rounds: int) -> Result:
    """Build both, store both, load both, search both."""
    data = load(name)
    result = Result(family=f"lists-{name}")
    with tempfile.TemporaryDirectory(prefix="bench-") as temporary:
        folder = Path(temporary)
        mine, built = engines.build_ours("ivf_pq", data.vectors, folder)
        shard, _ = engines.through_blob("ivf_pq", built, folder)
        engines.check_answers(shard, data)
        seconds: list[str] = []
        faiss: list[Contender] = []
        for factory in FACTORIES[name]:
            timed, made = build_faiss(data, factory, folder)
            faiss += made
            seconds.append(f"`{factory}` {timed.wall:.1f} s")
        rabitq = [
            made
            for clusters in CLUSTERS.get(name, MANY_CLUSTERS)
            for made in build_rabitq(data, clusters)
        ]
        own = engines.ours("ivf_pq", shard)
        for how, bounds in BOUNDS.items():
            curves = race([own, *faiss, *rabitq], data, batch=how == "batch", rounds=rounds)
            for key, peers in (("ivf", faiss), ("rabitq", rabitq)):
                result.rows += [
                    _row(
                        f"{key}-{name}-{how.split()[0]}",
                        f"{data.title}, {how}",
                        recall,
                        bounds,
                        own,
                        peers,
                        curves,
                    )
                    for recall in RECALLS
                ]
            shown = {one: curves[one] for one in (own.name, *_best(faiss, curves, 2))}
            shown |= {one: curves[one] for one in _best(rabitq, curves, 1)}
            result.plots.append(
                plot(f"lists-{name}-{how.split()[0]}", f"{data.title}, {how}", shown)
            )
    result.facts.append(
        f"{data.title}: build ivf_pq {mine.wall:.1f} s; faiss: {', '.join(seconds)} (2 threads)"
    )
    return result


def _row(
    key: str,
    where: str,
    recall: float,
    bounds: tuple[float, float],
    own: Contender,
    peers: list[Contender],
    curves: dict[str, Curve],
) -> Row:
    """Compare with the fastest of some peers, at one recall."""
    mine = rate_at(curves[own.name], recall)
    rates = {peer.name: rate_at(curves[peer.name], recall) or 0.0 for peer in peers}
    fastest = max(rates, key=lambda name: rates[name])
    best = rates[fastest] or None
    return Row(
        key=f"{key}-{recall:.2f}",
        what=f"`ivf_pq` ÷ {PEERS[key.split('-')[0]]}, {where}, recall@10 {recall:.2f}",
        ours=rate_text(mine),
        theirs=rate_text(best),
        measured=None if mine is None or best is None else mine / best,
        least=bounds[0],
        aim=bounds[1],
        note=f"the fastest: {fastest}",
    )


def _best(peers: list[Contender], curves: dict[str, Curve], many: int) -> list[str]:
    """Return the names of some of the peers: the fastest at the middle recall."""
    names = (peer.name for peer in peers)
    return sorted(names, key=lambda name: -(rate_at(curves[name], RECALLS[1]) or 0.0))[:many]
