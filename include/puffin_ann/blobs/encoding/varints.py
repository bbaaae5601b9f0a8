"""Varints: what they are, and the errors of the compiled loops over them (`kernels`).

A varint here is unsigned LEB128: seven bits a byte, lowest first, the high bit set on all but the
last byte; at most five bytes, and never longer than it need be, so that a value has one encoding.

Stands apart from `kernels` so that a module can speak of varints without importing Numba.
"""

MAX_BYTES = 5

CUT_OFF = -1
OVER_LONG = -2
DEGREE = -3
NEIGHBOUR = -4
LEFT_OVER = -5

MESSAGES = {
    CUT_OFF: "bytes end within a varint",
    OVER_LONG: "a varint is longer than it may be",
    DEGREE: "a node has more neighbours than the graph's maximum",
    NEIGHBOUR: "a neighbour is not a row of the shard, or is listed twice",
    LEFT_OVER: "bytes follow the last varint",
}
