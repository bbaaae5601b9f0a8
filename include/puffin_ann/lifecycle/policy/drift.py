"""Tell when the rows added since an index was built no longer fit it: pure."""

from puffin_ann.declaration import IndexDeclaration
from puffin_ann.lifecycle.policy.inputs import IndexState

DRIFT_SHARE = 0.01
"""Rows in deltas or merged last, as a share of those in shards, from which their mean distance
counts: a handful of outliers is no drift."""

ROWS_PER_CENTROID = 16
"""Centroids of fewer rows each fit those they were made of better than any that come later."""

NORM_SLACK = 1e-6
"""Relative, for norms summed in another order."""


def why_drifted(state: IndexState, declaration: IndexDeclaration) -> str:
    """Say by how much the distance of rows, their norms or the sizes of shards left their bounds.

    Empty if none did.
    """
    drift, rebuild = state.drift, declaration.rebuild
    if state.metric == "ip" and drift.largest_norm > state.norm_bound * (1 + NORM_SLACK):
        return (
            f"a row added has norm {drift.largest_norm:.4g}, above the bound "
            f"{state.norm_bound:.4g} that the index was built for"
        )
    shards = sum(graph.live for graph in state.graphs)
    added = drift.merged or sum(delta.live for delta in state.deltas)
    far = drift.built > 0 and drift.added > rebuild.drift * drift.built
    enough = added >= DRIFT_SHARE * shards and shards >= ROWS_PER_CENTROID * state.cells
    if far and enough:
        return (
            f"rows added are {drift.added / drift.built:.2f} times as far from their centroids as "
            f"those built, above rebuild.drift {rebuild.drift:g}"
        )
    # Centroids may give such shards from the start; building again would give the same.
    if drift.imbalance and state.imbalance > max(rebuild.imbalance, drift.imbalance):
        return (
            f"the largest shard holds {state.imbalance:.2f} times the mean, above "
            f"rebuild.imbalance {rebuild.imbalance:g}"
        )
    return ""
