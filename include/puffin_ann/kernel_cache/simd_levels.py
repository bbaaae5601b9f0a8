"""The levels of vector instructions that kernels are written for, and the processors of each.

A level is what the source of the kernels chooses by. To compile for every processor of a level,
LLVM is told what they have in common: a name by which it schedules, and the features it may use.
"""

import platform
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Literal

SimdLevel = Literal["vbmi", "avx2", "portable"]

LEVELS: tuple[SimdLevel, ...] = ("vbmi", "avx2", "portable")
"""The best first."""

_V2 = frozenset({"cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3"})
_V3 = _V2 | {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"}
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}


@dataclass(frozen=True)
class Processor:
    """A processor that code is compiled for, as LLVM names it.

    Attributes:
        name: such as `x86-64-v3`.
        features: that the code may use.
    """

    name: str
    features: frozenset[str]

    @property
    def flags(self) -> str:
        """The features as LLVM takes them: `+avx,+avx2,…`."""
        return ",".join(f"+{name}" for name in sorted(self.features))


_X86: Mapping[SimdLevel, Processor] = {
    "vbmi": Processor("x86-64-v4", _V4 | {"avx512vbmi", "avx512vnni"}),
    "avx2": Processor("x86-64-v3", _V3),
    "portable": Processor("x86-64-v2", _V2),
}
_CHOSEN_BY: Mapping[SimdLevel, frozenset[str]] = {
    "vbmi": frozenset({"avx512f", "avx512bw", "avx512vl", "avx512vbmi", "avx512vnni"}),
    "avx2": frozenset({"avx2"}),
}


def is_x86() -> bool:
    """Tell whether this machine's processor is of the family that has more than one level."""
    return platform.machine().lower() in ("x86_64", "amd64")


def common_processor(level: SimdLevel) -> Processor | None:
    """Return what runs on every processor of a level and of this family; None if there is none."""
    if is_x86():
        return _X86[level]
    return Processor("generic", frozenset()) if level == "portable" else None


def best_level(features: Set[str]) -> SimdLevel:
    """Return the level to use on a processor of this family that has these features."""
    if is_x86():
        for level, needed in _CHOSEN_BY.items():
            if features >= needed:
                return level
    return "portable"
