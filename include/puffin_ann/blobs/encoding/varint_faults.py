"""What the compiled loops over varints (`kernels`) return where bytes are wrong, and its words."""

CUT_OFF = -1
OVER_LONG = -2
DEGREE = -3
NEIGHBOUR = -4
LEFT_OVER = -5
TOO_LARGE = -6

MESSAGES = {
    CUT_OFF: "bytes end within a varint",
    OVER_LONG: "a varint is longer than it may be",
    DEGREE: "a node has more neighbours than the graph's maximum",
    NEIGHBOUR: "a neighbour is not a row of the shard, or is listed twice",
    LEFT_OVER: "bytes follow the last varint",
    TOO_LARGE: "a number is beyond 32 bits",
}
