"""The form on disk a shard is searched in: `.npy` files to be memory-mapped, and what they mean.

`shard.json` is written last and names every array with its type and shape, so a folder that a
crash left half-written has none and is never taken for a whole one.
"""

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from puffin_ann.array_files import load_array
from puffin_ann.errors import BlobFormatError, LocalCopyError
from puffin_ann.foreign_json import object_of, parse

MANIFEST = "shard.json"
FORM = 1
"""Version of this form. It is a cache: another version is unpacked again, never converted."""


class ArrayFile:
    """One `.npy` file written from its first byte to its last."""

    def __init__(self, path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self.dtype = dtype
        self.shape = shape
        self._left = dtype.itemsize * math.prod(shape)
        self._file = path.open("wb")
        header = {"descr": dtype.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._file, header)

    def write(self, data: bytes | memoryview) -> None:
        """Append bytes of the array."""
        self._left -= len(data)
        self._file.write(data)

    def close(self) -> None:
        """Close the file; `BlobFormatError` unless it got exactly the bytes of its shape."""
        self._file.close()
        if self._left:
            raise BlobFormatError(f"array of shape {self.shape} is {self._left} bytes short")


class Folder:
    """A folder being filled with arrays."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._arrays: dict[str, dict[str, Any]] = {}
        (directory / MANIFEST).unlink(missing_ok=True)

    @contextmanager
    def array(
        self, name: str, dtype: np.dtype[Any] | str, shape: tuple[int, ...]
    ) -> Iterator[ArrayFile]:
        """Give a file for an array's bytes in C order."""
        file = ArrayFile(self._directory / f"{name}.npy", np.dtype(dtype), shape)
        try:
            yield file
        except BaseException:
            file._file.close()
            raise
        file.close()
        self._arrays[name] = {"dtype": file.dtype.str, "shape": list(shape)}

    def finish(self, values: Mapping[str, Any]) -> None:
        """Write the manifest: from now on the folder is whole."""
        _write(self._directory, {"form": FORM, "arrays": self._arrays, "values": dict(values)})


def leave_out(directory: Path, names: Iterable[str]) -> None:
    """Remove arrays from a folder, as far as they are there; at no time is it not whole.

    It must not be sealed yet.
    """
    manifest = object_of(parse((directory / MANIFEST).read_bytes()))
    left_out = [name for name in names if manifest["arrays"].pop(name, None)]
    _write(directory, manifest)
    for name in left_out:
        (directory / f"{name}.npy").unlink()


def _write(directory: Path, manifest: Mapping[str, Any]) -> None:
    partial = directory / f"{MANIFEST}.part"
    partial.write_text(json.dumps(manifest, indent=1))
    os.replace(partial, directory / MANIFEST)


def open_folder(directory: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return a folder's arrays, memory-mapped read-only, and its values.

    Raises:
        LocalCopyError: The folder is not whole, cannot be read or is of another form: throw it
            away and unpack the blob again.
    """
    try:
        manifest = object_of(parse((directory / MANIFEST).read_bytes()))
        if manifest["form"] != FORM:
            raise LocalCopyError(f"{directory}: form {manifest['form']}, not {FORM}")
        arrays = {
            name: _map(directory / f"{name}.npy", np.dtype(entry["dtype"]), tuple(entry["shape"]))
            for name, entry in manifest["arrays"].items()
        }
        return arrays, manifest["values"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise LocalCopyError(f"{directory} is not a whole unpacked shard: {error}") from None


def _map(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    # An empty file part cannot be mapped, so an empty array is simply read.
    array: NDArray[Any] = load_array(path, mapped=math.prod(shape) > 0)
    if array.dtype != dtype or array.shape != shape:
        raise LocalCopyError(f"{path} is {array.dtype} {array.shape}, not {dtype} {shape}")
    return array
