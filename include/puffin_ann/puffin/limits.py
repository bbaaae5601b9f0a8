"""How much a compressed blob may unpack to, by what is stored of it.

A frame's own word is no bound: fifty kilobytes of zstd may unpack to a gigabyte. What an
index really stores is compressed to a hundredth at most, where thousands of files have almost the
same long path. So a blob of a few kilobytes may hold some megabytes, and gigabytes are given out
only for a blob that is itself hundreds of megabytes long. Blobs that are stored as they are have no
other limit than the file's length.
"""

SMALL = 16 << 20
RATIO = 256
LARGE = 1 << 30
"""From here on what is stored counts: vectors are hardly compressed at all."""
RATIO_OF_LARGE = 4


def content_limit(stored: int) -> int:
    """Return the most bytes that a compressed blob of `stored` bytes may hold."""
    return min(SMALL + RATIO * stored, max(LARGE, RATIO_OF_LARGE * stored))


def is_within(content: int, stored: int) -> bool:
    """Tell whether readers take `content` bytes from a compressed blob of `stored` bytes."""
    return content <= content_limit(stored)
