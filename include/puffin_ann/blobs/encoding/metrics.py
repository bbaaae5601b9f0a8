"""How metrics are written: a code in the blobs, the name everywhere else."""

from puffin_ann.errors import BlobFormatError

CODES = {"l2": 1, "cosine": 2, "ip": 3}
_NAMES = {code: name for name, code in CODES.items()}


def code(metric: str) -> int:
    """Return the code of a metric; `BlobFormatError` for an unknown name."""
    try:
        return CODES[metric]
    except KeyError:
        raise BlobFormatError(f"metric {metric!r} has no code (known: {list(CODES)})") from None


def name(code: int, where: str) -> str:
    """Return the metric of a code; `BlobFormatError` for an unknown one."""
    try:
        return _NAMES[code]
    except KeyError:
        raise BlobFormatError(f"{where}: unknown metric code {code}") from None


def search_dimension(metric: str, dimension: int) -> int:
    """Return the width of centroids and codes: one more for `ip`, which works norm-augmented."""
    return dimension + 1 if metric == "ip" else dimension
