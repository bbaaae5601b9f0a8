"""Shapes of indexes whose size is predicted."""

from puffin_ann.declaration import parse_declaration
from puffin_ann.engines.sizes import Shape, in_fewest_shards


def shape_of(
    rows,
    dimension,
    algorithm="vamana",
    vectors="float32",
    *,
    files=1,
    row_groups=1,
    included=0.0,
    links=None,
    **declared,
):
    """Return an index as it is declared, over so many rows; in the fewest shards if that is not."""
    index = {"name": "i", "table": "c.n.t", "column": "v", "algorithm": algorithm}
    index |= {"vectors": vectors, **declared}
    declaration = parse_declaration(index, source="test")
    shape = Shape(declaration, rows, dimension, files, row_groups, included, links)
    return shape if "shards" in declared else in_fewest_shards(shape)
