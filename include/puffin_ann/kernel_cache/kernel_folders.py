"""In which folders compiled kernels are, and which of those are as safe as the library's code.

Kernels of each processor have a folder of their own, named by the processor and by what compiled
them. Kernels made for all processors of a level, see `simd_levels`, stand in where there are none
for the very processor. What `puffin-ann compile` put beside the library is believed as far as the
library's own code is.
"""

import hashlib
import logging
import os
import re
import stat
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import llvmlite
import numba

from puffin_ann import private_folders
from puffin_ann.errors import UnsafeFolderError
from puffin_ann.kernel_cache.simd_levels import SimdLevel, common_processor

log = logging.getLogger("puffin_ann.kernels")

FORM = "2"
"""Of these files."""
COMPILER = (sys.implementation.cache_tag or "", numba.__version__, llvmlite.__version__, FORM)
"""What compiles the kernels, and what loads them."""


@dataclass(frozen=True)
class Places:
    """Where compiled kernels are.

    Attributes:
        made: the folder of those that came with the installation; only read, need not be there.
        kept: the folder of those that had to be compiled; None if they are not kept.
        trusted: everyone who can write to the latter is trusted.
        level: the level of vector instructions that kernels of this process are written for.
    """

    made: Path
    kept: Path | None
    trusted: bool
    level: SimdLevel


@lru_cache(maxsize=16)
def processor_folder(processor: tuple[str, str, str], level: str) -> str:
    """Return the name of the folder of the kernels for a processor.

    Args:
        processor: its triple, name and features, as Numba's code generator gives them.
        level: of vector instructions.
    """
    digest = hashlib.sha256("\n".join((*processor, *COMPILER)).encode()).hexdigest()[:8]
    return f"{level}-{re.sub('[^A-Za-z0-9-]', '_', processor[1])}-{digest}"


@lru_cache(maxsize=16)
def made_for(
    places: Places, processor: tuple[str, str, str]
) -> tuple[Path, tuple[str, str, str]] | None:
    """Return the folder of installed kernels for a processor, and the processor they are for.

    That is the very processor, or what is common to those of its level; None if there is no such
    folder, or if it is not as safe as the library's code.

    Args:
        places: where kernels are.
        processor: see `processor_folder`.
    """
    for candidate in (processor, *_common(places.level, processor)):
        folder = places.made / processor_folder(candidate, places.level)
        try:
            require_as_safe_as_code(folder)
        except FileNotFoundError:
            continue
        except (OSError, UnsafeFolderError) as error:
            log.warning("compiled kernels in %s are not used: %s", folder, error)
            continue
        return folder, candidate
    return None


def _common(level: SimdLevel, processor: tuple[str, str, str]) -> list[tuple[str, str, str]]:
    common = common_processor(level)
    has = {flag[1:] for flag in processor[2].split(",") if flag.startswith("+")}
    return [(processor[0], common.name, common.flags)] if common and common.features <= has else []


def require_as_safe_as_code(folder: Path) -> None:
    """Refuse a folder that people could write to who cannot write to the library's code.

    Inside the environment that the library runs from, only what is below its root is looked at:
    whoever could exchange the root could exchange the code, too.
    """
    try:
        steps = folder.relative_to(sys.prefix).parts
    except ValueError:
        if not is_of_code(folder, os.lstat(folder)):
            private_folders.require_private(folder)
        return
    real = Path(sys.prefix)
    for step in steps:
        real /= step
        status = os.lstat(real)
        if not stat.S_ISDIR(status.st_mode) or not is_of_code(real, status):
            raise UnsafeFolderError(
                f"{real} is no folder that belongs to whom the library's code belongs, or to root, "
                "and that only they can write to"
            )


def is_of_code(place: Path | int, status: os.stat_result) -> bool:
    """Tell whether a folder or file is no more open to others than the library's code is.

    Images let root's group write to what they come with, and not to what is installed later.
    """
    code = _code()
    theirs = stat.S_IWOTH
    if not private_folders.group_is_roots(place, status):
        theirs |= stat.S_IWGRP
    is_open = bool(status.st_mode & ~code.st_mode & theirs)
    return status.st_uid in (0, os.geteuid(), code.st_uid) and not is_open


@lru_cache(maxsize=1)
def _code() -> os.stat_result:
    return os.stat(Path(__file__).parent)
