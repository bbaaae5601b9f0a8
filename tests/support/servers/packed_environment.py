"""An environment packed for machines that have no more than Python, as venv-pack would pack it."""

import io
import os
import sys
import tarfile
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

import puffin_ann
from puffin_ann.settings import settings

BASE = Path(os.path.realpath(sys.executable))
"""The Python that this environment was made from, without any of its packages."""

PACKAGES = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"


def needed(name: str, extras: frozenset[str]) -> dict[str, Distribution]:
    """Return what a package needs that is installed here, by name, the package itself left out."""
    found: dict[str, Distribution] = {}
    waiting = [(name, extras)]
    while waiting:
        current, wanted = waiting.pop()
        try:
            required = distribution(current).requires or ()
        except PackageNotFoundError:  # of another platform
            continue
        for requirement in map(Requirement, required):
            marker = requirement.marker
            if marker and not any(marker.evaluate({"extra": extra}) for extra in {"", *wanted}):
                continue
            key = requirement.name.lower().replace("_", "-")
            if key not in found:
                try:
                    found[key] = distribution(requirement.name)
                except PackageNotFoundError:
                    continue
                waiting.append((requirement.name, frozenset(requirement.extras)))
    return found


def pack_environment(archive: Path) -> None:
    """Pack the library as it is here, with what it and its extra `s3` need, and its kernels."""
    library = Path(puffin_ann.__file__).parent
    kernels = settings().kernels_dir
    with tarfile.open(archive, "w:gz", compresslevel=1) as out:
        _link(out, "bin/python", str(BASE))
        config = f"home = {BASE.parent}\ninclude-system-site-packages = false\n".encode()
        member = tarfile.TarInfo("pyvenv.cfg")
        member.size = len(config)
        out.addfile(member, io.BytesIO(config))
        out.add(library, f"{PACKAGES}/puffin_ann")
        if kernels.is_dir():
            out.add(kernels, "share/puffin-ann/kernels")
        for package in needed("puffin-ann", frozenset({"s3"})).values():
            for name, path in _files(package):
                out.add(path, f"{PACKAGES}/{name}", recursive=False)


def _files(package: Distribution) -> Iterator[tuple[str, Path]]:
    """Return the files of a package, but for its tests and its commands."""
    for file in package.files or ():
        path = Path(str(package.locate_file(file)))
        if "tests" not in file.parts and ".." not in file.parts and path.is_file():
            yield str(file), path


def _link(out: tarfile.TarFile, name: str, target: str) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.mode = tarfile.SYMTYPE, target, 0o777
    out.addfile(member)
