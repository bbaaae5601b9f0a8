"""A store that fails when it is told to, and a FileIO of PyIceberg's that reaches tables in it.

Locations are `store:///folder/...`, so that nothing takes the objects for local files, which they
are. Each request can be made to fail as the clients of stores say it, or to be cut short.
"""

import shutil
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO

SCHEME = "store"


def aws(words: str) -> OSError:
    return OSError(f"When asking for key 'k' in bucket 'b': AWS Error {words}: No response body.")


FAULTS: dict[str, Callable[[], Exception]] = {
    "500": lambda: aws("UNKNOWN (HTTP status 500) during HeadObject operation"),
    "503": lambda: aws("SLOW_DOWN during GetObject operation"),
    "403": lambda: aws("ACCESS_DENIED during HeadObject operation"),
    "reset": lambda: aws("NETWORK_CONNECTION during GetObject operation: curlCode: 56"),
    "timeout": lambda: TimeoutError("timed out"),
    "disk": lambda: OSError(5, "Input/output error"),
}
CUT = "cut"
"""The answer ends in the middle; of a request that reads nothing, the connection does."""


@dataclass(frozen=True)
class Request:
    """What a store is asked: `kind` is length, open, read, list, write or delete."""

    kind: str
    uri: str
    number: int


Weather = Callable[[Request], str | None]
"""Which fault a request meets, None for none."""


class Store:
    """What is behind every `StoreIO` of this process."""

    def __init__(self) -> None:
        self.weather: Weather = lambda request: None
        self.requests: list[Request] = []

    def meet(self, kind: str, uri: str) -> bool:
        """Raise what a request meets; returns whether its answer is cut short."""
        request = Request(kind, uri, len(self.requests))
        self.requests.append(request)
        fault = self.weather(request)
        if fault == CUT and kind != "read":
            fault = "reset"
        if fault not in (None, CUT):
            raise FAULTS[fault]()
        return fault == CUT

    @contextmanager
    def under(self, weather: Weather):
        """Have requests meet a weather for a while; gives the list of them."""
        self.requests, self.weather = [], weather
        try:
            yield self.requests
        finally:
            self.weather = lambda request: None


STORE = Store()


class FaultyIO(FileIO):
    """Another FileIO, behind a store that fails or cuts answers short."""

    def __init__(
        self,
        inner: FileIO,
        *,
        fails: Callable[[Request], bool] = lambda request: False,
        cuts: Callable[[Request], bool] = lambda request: False,
        store: Store | None = None,
    ) -> None:
        super().__init__(inner.properties)
        self.inner = inner
        self.store = store or Store()
        if store is None:
            self.store.weather = lambda request: (
                "500" if fails(request) else CUT if cuts(request) else None
            )

    def new_input(self, location: str) -> InputFile:
        return _Input(self, location)

    def new_output(self, location: str) -> OutputFile:
        return _Output(self, location)

    def delete(self, location: Any) -> None:
        uri = location if isinstance(location, str) else location.location
        self.store.meet("delete", uri)
        self.inner.delete(self.place(uri))

    def place(self, uri: str) -> str:
        return uri


class StoreIO(FaultyIO):
    """The FileIO of tables at `store:///...`; its requests meet the weather of `STORE`."""

    def __init__(self, properties: dict[str, str] | None = None) -> None:
        super().__init__(PyArrowFileIO(properties or {}), store=STORE)

    def place(self, uri: str) -> str:
        return uri.removeprefix(f"{SCHEME}://")

    def get_fs(self, scheme: str) -> "_Folders":
        return _Folders(self)


class _Folders:
    """What a FileIO by fsspec gives to list and to delete folders."""

    def __init__(self, io: StoreIO) -> None:
        self._io = io

    def _strip_protocol(self, uri: str) -> str:
        return self._io.place(uri).rstrip("/")

    def find(self, root: str, *, maxdepth: int | None, detail: bool) -> dict[str, dict[str, Any]]:
        self._io.store.meet("list", root)
        base = Path(self._strip_protocol(root))
        found = base.rglob("*") if maxdepth is None else base.glob("*")
        return {
            str(path): {"size": path.stat().st_size, "mtime": path.stat().st_mtime}
            for path in found
            if path.is_file()
        }

    def exists(self, root: str) -> bool:
        self._io.store.meet("list", root)
        return Path(self._strip_protocol(root)).exists()

    def rm(self, root: str, *, recursive: bool) -> None:
        self._io.store.meet("delete", root)
        shutil.rmtree(self._strip_protocol(root))


class _Input(InputFile):
    def __init__(self, io: FaultyIO, location: str) -> None:
        super().__init__(location)
        self._io = io
        self._file = io.inner.new_input(io.place(location))

    def __len__(self) -> int:
        self._io.store.meet("length", self.location)
        return self._file.__len__()

    def exists(self) -> bool:
        self._io.store.meet("length", self.location)
        return self._file.exists()

    def open(self, seekable: bool = True) -> Any:
        self._io.store.meet("open", self.location)
        return _Stream(self._io, self.location, self._file.open(seekable))


class _Output(OutputFile):
    def __init__(self, io: FaultyIO, location: str) -> None:
        super().__init__(location)
        self._io = io
        self._file = io.inner.new_output(io.place(location))

    def __len__(self) -> int:
        return len(self.to_input_file())

    def exists(self) -> bool:
        return self.to_input_file().exists()

    def to_input_file(self) -> InputFile:
        return self._io.new_input(self.location)

    def create(self, overwrite: bool = False) -> Any:
        self._io.store.meet("write", self.location)
        Path(self._io.place(self.location)).parent.mkdir(parents=True, exist_ok=True)
        return self._file.create(overwrite)


class _Stream:
    """A stream whose reads are requests."""

    def __init__(self, io: FaultyIO, location: str, inner: Any) -> None:
        self._io, self._location, self._inner = io, location, inner

    def read(self, size: int = -1) -> bytes:
        is_cut = self._io.store.meet("read", self._location)
        if is_cut and (size is None or size < 0):  # whose length the client was told
            raise FAULTS["reset"]()
        data: bytes = self._inner.read() if size is None or size < 0 else self._inner.read(size)
        return data[: len(data) // 2] if is_cut else data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __enter__(self) -> "_Stream":
        return self

    def __exit__(self, *_: object) -> None:
        self._inner.close()


class _Calls:
    def __init__(self, failures: list[Exception]) -> None:
        self._failures = failures
        self.made = 0

    def __call__(self) -> str:
        self.made += 1
        if self.made <= len(self._failures):
            raise self._failures[self.made - 1]
        return "answer"


def broken_by(failures: list[Exception]) -> _Calls:
    """Return a question whose first answers are errors."""
    return _Calls(failures)
