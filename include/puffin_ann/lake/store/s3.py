"""What FileIO cannot do on S3: puts that create or fail, and objects assembled by the store.

Endpoint and credentials are those of the table's FileIO properties, so there is nothing to set up
twice; where those leave credentials out, both look for them in the same places.
"""

import errno
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from importlib.util import find_spec
from threading import Lock
from typing import Any

from pyiceberg.io import (
    AWS_ACCESS_KEY_ID,
    AWS_PROFILE_NAME,
    AWS_REGION,
    AWS_ROLE_ARN,
    AWS_SECRET_ACCESS_KEY,
    AWS_SESSION_TOKEN,
    S3_ACCESS_KEY_ID,
    S3_ANONYMOUS,
    S3_CONNECT_TIMEOUT,
    S3_ENDPOINT,
    S3_FORCE_VIRTUAL_ADDRESSING,
    S3_PROFILE_NAME,
    S3_PROXY_URI,
    S3_REGION,
    S3_REQUEST_TIMEOUT,
    S3_ROLE_ARN,
    S3_SECRET_ACCESS_KEY,
    S3_SESSION_TOKEN,
    S3_SIGNER,
    FileIO,
)
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.utils.properties import get_first_property_value, property_as_bool

from puffin_ann.errors import (
    EnvironmentProblemError,
    StagingError,
    StoreDeniedError,
    StoreRefusedError,
    StoreUnavailableError,
)
from puffin_ann.imports.extras import needing
from puffin_ann.lake.store.credentials import is_lent, valid_properties
from puffin_ann.lake.store.outages import translate, with_valid_credentials
from puffin_ann.redaction import shown_cause

SCHEMES = frozenset({"s3", "s3a", "s3n"})

# PyIceberg has these properties since 0.12.
S3_SERVER_SIDE_ENCRYPTION = "s3.server-side-encryption"
S3_SSE_KMS_KEY_ID = "s3.sse-kms-key-id"

CONNECTIONS = 32
RANGES_AT_ONCE = 128
"""Small ranges that are asked for together: those beyond wait for another round trip."""

ATTEMPTS = 5
CONNECT_SECONDS = 10.0
READ_SECONDS = 120.0
"""The store answers the copy of a part when it is done, which for a large one takes a while."""

_SESSION = {
    "aws_access_key_id": (S3_ACCESS_KEY_ID, AWS_ACCESS_KEY_ID),
    "aws_secret_access_key": (S3_SECRET_ACCESS_KEY, AWS_SECRET_ACCESS_KEY),
    "aws_session_token": (S3_SESSION_TOKEN, AWS_SESSION_TOKEN),
    "region_name": (S3_REGION, AWS_REGION),
    "profile_name": (S3_PROFILE_NAME, AWS_PROFILE_NAME),
}
"""Arguments of a session of boto3, and the properties they come from, first that is there."""

_OF_CLIENTS = frozenset(
    (
        *(name for names in _SESSION.values() for name in names),
        S3_ENDPOINT,
        S3_FORCE_VIRTUAL_ADDRESSING,
        S3_PROXY_URI,
        S3_CONNECT_TIMEOUT,
        S3_REQUEST_TIMEOUT,
    )
)
"""All properties that a client is made by. FileIO's hold those of the table as well, which every
commit may change."""

_KNOWN = ("pyiceberg.io.pyarrow.PyArrowFileIO", "pyiceberg.io.fsspec.FsspecFileIO")
"""Classes of PyIceberg, by name: to import the second takes a twentieth of a second, for nothing
where the table's FileIO is the first."""

_BEYOND_US = (S3_SIGNER, S3_ROLE_ARN, AWS_ROLE_ARN, S3_ANONYMOUS)
"""Properties that say that requests are signed by someone else, by nobody, or in another role."""

_CONFLICTS = 3
_ABSENCE = {412: False, 501: None}
"""What a refused conditional put means, by HTTP status."""


@dataclass(frozen=True)
class Location:
    """A bucket and a key in it."""

    bucket: str
    key: str

    @classmethod
    def of(cls, uri: str) -> "Location | None":
        """Return the place a location names on S3, or None if it is elsewhere.

        None, too, for a key with a question mark or a hash: implementations of FileIO do not agree
        on what object that is, so it is left to them.
        """
        scheme, _, rest = uri.partition("://")
        bucket, _, key = rest.partition("/")
        if scheme not in SCHEMES or not bucket or "?" in rest or "#" in rest:
            return None
        return cls(bucket, key)

    @classmethod
    def require(cls, uri: str) -> "Location":
        """Return the place a location names on S3; StagingError if it is elsewhere."""
        place = cls.of(uri)
        if place is None:
            raise StagingError(f"{uri} is not a location on S3")
        return place


def s3_of(io: FileIO, uri: str) -> "S3 | None":
    """Return the store of a location; None if it is not S3, or one we cannot sign requests for.

    A FileIO of another class than PyIceberg's own may have any store behind `s3://`.
    """
    known = f"{type(io).__module__}.{type(io).__qualname__}" in _KNOWN
    if Location.of(uri) is None or not known or any(io.properties.get(key) for key in _BEYOND_US):
        return None
    return S3(io.properties, io)


def ranges_of(io: FileIO, uri: str) -> "S3 | None":
    """Return the store of a location if it can be read by ranges, without opening an object.

    That takes a package that only writing to S3 needs otherwise.
    """
    return s3_of(io, uri) if _has_client() else None


@cache
def _has_client() -> bool:
    return find_spec("boto3") is not None


class S3:
    """A client of one store; its methods may be called from several threads.

    Every method raises `StoreRefusedError` where the store refused what was asked, and
    `StoreUnavailableError` where it refused access or gave no answer.
    """

    def __init__(self, properties: Mapping[str, str], io: FileIO | None = None) -> None:
        self._properties = dict(properties)
        self._io = io
        self.encryption = _encryption(properties)

    @cached_property
    def client(self) -> Any:
        """The botocore client."""
        if isinstance(self._io, PyArrowFileIO) and is_lent(self._io):
            return _LentClient(self._io)
        return self.botocore_client

    @property
    def botocore_client(self) -> Any:
        """The botocore client, with the credentials that are valid now."""
        properties: Mapping[str, str] = self._properties
        if isinstance(self._io, PyArrowFileIO) and is_lent(self._io):
            properties = valid_properties(self._io)
        return _client(_settled(properties))

    def version(self, uri: str) -> str:
        """Return the ETag of an object."""
        return str(self.head(Location.require(uri))["ETag"])

    def head(self, place: Location) -> dict[str, Any]:
        """Return what the store says of an object."""
        with answers(f"s3://{place.bucket}/{place.key}"):
            found: dict[str, Any] = self.client.head_object(Bucket=place.bucket, Key=place.key)
        return found

    def read_range(self, uri: str, offset: int, length: int, version: str) -> bytes:
        """Return a range of an object, if its ETag is still `version`."""
        place = Location.require(uri)
        with answers(uri):
            answer = self.client.get_object(
                Bucket=place.bucket,
                Key=place.key,
                Range=f"bytes={offset}-{offset + length - 1}",
                IfMatch=version,
            )
            data: bytes = answer["Body"].read()
        if len(data) != length:
            raise StagingError(f"{uri} gave {len(data)} bytes at {offset}, not {length}")
        return data

    def range(self, uri: str, offset: int, length: int) -> tuple[bytes, int]:
        """Return a range of an object, as far as that reaches, and the bytes of all of it.

        Raises:
            FileNotFoundError: it is not there.
        """
        place = Location.require(uri)
        end = offset + length - 1
        try:
            with answers(uri):
                answer = self.client.get_object(
                    Bucket=place.bucket, Key=place.key, Range=f"bytes={offset}-{end}"
                )
                data: bytes = answer["Body"].read()
        except StoreRefusedError as error:
            if error.status == 404 and error.code != "NoSuchBucket":
                raise FileNotFoundError(errno.ENOENT, "there is no such object", uri) from None
            if error.status == 416:  # it ends before the range begins
                return b"", min(offset, self.head(place)["ContentLength"])
            raise
        return data, int(answer["ContentRange"].rpartition("/")[2])

    def put_new(self, uri: str, data: bytes) -> bool | None:
        """Create an object, unless it is there; of several callers at once, one gets True.

        None if the store knows no conditional put: nothing was done then.
        """
        for attempt in range(_CONFLICTS):
            try:
                self._put_new(Location.require(uri), data)
            except StoreRefusedError as error:
                if error.status in _ABSENCE:
                    return _ABSENCE[error.status]
                # 409: another put or a deletion is under way, and nothing is decided yet.
                if error.status != 409 or attempt == _CONFLICTS - 1:
                    raise
            else:
                break
        return True

    def _put_new(self, place: Location, data: bytes) -> None:
        with answers(f"s3://{place.bucket}/{place.key}"):
            self.client.put_object(
                Bucket=place.bucket, Key=place.key, Body=data, IfNoneMatch="*", **self.encryption
            )

    def delete_tree(self, uri: str) -> None:
        """Remove every object below a location; no error if there is none."""
        place = Location.require(f"{uri.rstrip('/')}/")
        with answers(uri):
            pages = self.client.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=place.bucket, Prefix=place.key):
                found = [{"Key": item["Key"]} for item in page.get("Contents", ())]
                if not found:
                    continue
                answer = self.client.delete_objects(Bucket=place.bucket, Delete={"Objects": found})
                for error in answer.get("Errors", ()):
                    raise StagingError(f"{error['Key']} cannot be deleted: {error['Code']}")


class _LentClient:
    """A botocore client with the credentials that are valid when it is called."""

    def __init__(self, io: PyArrowFileIO) -> None:
        self._io = io

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            def ask() -> Any:
                client = _client(_settled(valid_properties(self._io)))
                return getattr(client, name)(*arguments, **named)

            return with_valid_credentials(ask)

        return call


@contextmanager
def answers(what: str) -> Iterator[None]:
    """Turn botocore's errors into ours; `what` names the object asked for."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        raise _answered(what, error.response) from shown_cause(error)
    except BotoCoreError as error:
        raise translate(error, what) from shown_cause(error)


def _answered(what: str, response: Mapping[str, Any]) -> EnvironmentProblemError:
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    error = response.get("Error", {})
    reason = f"{error.get('Code', status)}: {error.get('Message', '')}"
    if status == 412:
        reason = "it was changed since it was read; run the stage again"
    if status in (401, 403):
        return StoreDeniedError(
            f"the store refuses access to {what}: {reason}; check the credentials or permissions"
        )
    if status == 501 or (400 <= status < 500 and status not in (408, 429)):
        code = str(error.get("Code", ""))
        return StoreRefusedError(f"the store refused {what}: {reason}", status, code)
    return StoreUnavailableError(f"the store failed at {what}: {reason}")


def _settled(properties: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the properties that a client is made by, in a fixed order."""
    return tuple(sorted((name, properties[name]) for name in _OF_CLIENTS & properties.keys()))


_making = Lock()


def _client(settled: tuple[tuple[str, str], ...]) -> Any:
    with _making:  # or each of the threads that ask first would make one
        return _made_client(settled)


@lru_cache(maxsize=8)  # a client takes a sixth of a second to make, and a run loads tables often
def _made_client(settled: tuple[tuple[str, str], ...]) -> Any:
    properties = dict(settled)
    # Not at the top: botocore takes a third of a second to import, and most tables are elsewhere.
    with needing("s3", "to write to S3"):
        import boto3
        from botocore.config import Config

    endpoint = properties.get(S3_ENDPOINT)
    if endpoint and "://" not in endpoint:
        endpoint = f"https://{endpoint}"  # Arrow takes a host alone, too
    session = boto3.Session(
        **{name: get_first_property_value(properties, *keys) for name, keys in _SESSION.items()}
    )
    virtual = property_as_bool(properties, S3_FORCE_VIRTUAL_ADDRESSING, not endpoint)
    proxy = properties.get(S3_PROXY_URI)
    config = Config(
        connect_timeout=float(properties.get(S3_CONNECT_TIMEOUT) or CONNECT_SECONDS),
        read_timeout=max(float(properties.get(S3_REQUEST_TIMEOUT) or 0), READ_SECONDS),
        max_pool_connections=RANGES_AT_ONCE,
        retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
        s3={"addressing_style": "virtual" if virtual else "path"},
        proxies={"http": proxy, "https": proxy} if proxy else None,
        # Many stores that speak S3 do not know the checksums botocore adds unasked.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    client = session.client(
        "s3",
        endpoint_url=endpoint,
        # A region of some name is part of every signature; stores of other makers accept any.
        region_name=session.region_name or "us-east-1",
        config=config,
    )
    client.meta.events.register_first("choose-signer.s3.GetObject", _as_requests_are_signed)
    return client


def _as_requests_are_signed(signature_version: str, **_more: Any) -> str | None:
    """Have addresses signed as requests are, where botocore would by the version before."""
    return "s3v4-query" if signature_version in ("s3v4-query", "v4-query") else None


def _encryption(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the arguments that make new objects be encrypted as FileIO has them encrypted."""
    names = {
        "ServerSideEncryption": properties.get(S3_SERVER_SIDE_ENCRYPTION),
        "SSEKMSKeyId": properties.get(S3_SSE_KMS_KEY_ID),
    }
    return {name: value for name, value in names.items() if value}
