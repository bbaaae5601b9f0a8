"""Let S3 put an object together: a multipart upload whose parts it copies by itself.

An upload belongs to its object's key, and the key to the object plan, so an attempt that comes
after one that died finds that upload, and does only the parts that are missing. Other attempts at
the same time do no harm: they upload the same parts. One of them completes the upload, or aborts
it, or makes parts again that then have other tags; the store then refuses the others' requests.
These look whether the object is there, and if not, go on from what is.
"""

import logging
import time
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from puffin_ann.errors import EnvironmentProblemError, StagingError, StoreRefusedError
from puffin_ann.lake.store.assemble.multipart_plan import Part, plan
from puffin_ann.lake.store.assemble.object_plan import (
    CopiedRange,
    InlineBytes,
    ObjectPlan,
    Piece,
    Told,
    nobody,
)
from puffin_ann.lake.store.s3 import CONNECTIONS, S3, Location, answers

STALE = timedelta(days=1)
"""An upload begun so long ago belongs to no run: every attempt at one takes minutes."""

WAITS_SECONDS = (0.1, 0.5, 2.0, 5.0)
"""Between looks at what others made of an upload: one that is being completed is neither that nor
the object for a while, on some stores."""

_OTHERS = frozenset({"InvalidPart", "NoSuchUpload"})
"""What a store refuses with where another attempt changed the upload, by its own word."""

OBJECT_PLAN = "puffin-ann-recipe"
"""Metadata of a finished object: the digest of the object plan it was made by."""

_log = logging.getLogger("puffin_ann")

ETag = str
Done = dict[int, ETag]


def assemble(store: S3, place: Location, object_plan: ObjectPlan, told: Told = nobody) -> None:
    """Make the object, or go on where an earlier attempt stopped; nothing if it is there.

    If the store refuses a part, a source that changed for instance, all attempts at the upload are
    aborted. If it gives no answer, the upload stays for the next attempt.

    Args:
        store: where it is made.
        place: of the object.
        object_plan: what it is made of.
        told: gets the bytes of each part that is done, from several threads.

    Raises:
        StoreRefusedError: a source is gone or changed, or the store does not allow the copy.
        StoreUnavailableError: the store refuses access, or gives no answer.
    """
    job = _Job(store, place, object_plan, told)
    try:
        if job.is_there() or _made(job):
            return
    except StoreRefusedError:
        job.abort_uploads()
        raise
    found = store.head(place)["ContentLength"]
    if found != object_plan.length:
        raise StagingError(
            f"{job.uri} has {found} bytes, not the {object_plan.length} of its parts"
        )


def _made(job: "_Job") -> bool:
    """Make the object; tell whether another attempt did it meanwhile."""
    for wait_seconds in (*WAITS_SECONDS, None):
        try:
            job.run()
        except StoreRefusedError as error:
            if job.is_there():
                job.abort_uploads()  # nobody needs them any more
                return True
            if wait_seconds is None or not job.is_changed_by_others(error):
                raise
            _log.info("looking again what others made of the upload: %s", error)
            time.sleep(wait_seconds)
        else:
            break
    return False


def sweep(store: S3, place: Location, *, run: str, all_runs: str) -> None:
    """Abort uploads that nobody will finish, never `place`'s own; errors are logged only.

    Args:
        store: where to look.
        place: the object that is being made.
        run: keys that begin so are of attempts of the same run, whose object plan has changed
            since.
        all_runs: keys that begin so are of runs; what those began a day ago has died.
    """
    limit = datetime.now(UTC) - STALE

    def is_left(upload: Upload) -> bool:
        return upload.key != place.key and (upload.key.startswith(run) or upload.begun < limit)

    _abort(store, place.bucket, all_runs, is_left)


@dataclass(frozen=True)
class Upload:
    """An upload begun and neither completed nor aborted."""

    key: str
    id: str
    begun: datetime


def _abort(store: S3, bucket: str, prefix: str, which: Callable[[Upload], bool]) -> None:
    """Abort uploads, and so free the parts they hold; errors are logged only."""
    try:
        for upload in filter(which, uploads(store, bucket, prefix)):
            abort_upload(store, bucket, upload)
    except EnvironmentProblemError as error:
        _log.warning("unfinished uploads may be left under s3://%s/%s: %s", bucket, prefix, error)


def abort_upload(store: S3, bucket: str, upload: Upload) -> None:
    """Abort one upload; no error if it is gone already."""
    _log.info("aborting upload %s of s3://%s/%s", upload.id, bucket, upload.key)
    try:
        with answers(f"upload {upload.id} of {upload.key}"):
            store.client.abort_multipart_upload(Bucket=bucket, Key=upload.key, UploadId=upload.id)
    except StoreRefusedError as error:
        if error.status != 404:
            raise


def uploads(store: S3, bucket: str, prefix: str) -> list[Upload]:
    """Return the uploads begun under a prefix and neither completed nor aborted."""
    found: list[Upload] = []
    with answers(f"s3://{bucket}/{prefix}"):
        pages = store.client.get_paginator("list_multipart_uploads")
        for page in pages.paginate(Bucket=bucket, Prefix=prefix):
            found += [
                Upload(item["Key"], item["UploadId"], item["Initiated"])
                for item in page.get("Uploads", ())
            ]
    return found


class _Job:
    """One attempt to make one object."""

    def __init__(self, store: S3, place: Location, object_plan: ObjectPlan, told: Told) -> None:
        self._store = store
        self._place = place
        self._recipe = object_plan
        self._digest = object_plan.digest()
        self._told = told
        self.uri = f"s3://{place.bucket}/{place.key}"
        self._object = {"Bucket": place.bucket, "Key": place.key}
        self._upload = ""

    def is_there(self) -> bool:
        """Tell whether an earlier attempt finished the object."""
        try:
            found = self._store.head(self._place)
        except StoreRefusedError as error:
            if error.status == 404:
                return False
            raise
        if found["ContentLength"] == self._recipe.length and (
            found.get("Metadata", {}).get(OBJECT_PLAN) == self._digest
        ):
            return True
        raise StoreRefusedError(f"{self.uri} is there already, and is another object", 409)

    def run(self) -> None:
        """Make the missing parts and complete the upload."""
        parts = plan(self._begin_with_source(self._recipe.pieces))
        upload = self._upload = self._begun()
        done = self._done(upload, parts)
        if done:
            _log.info("going on with the upload of %s: %d parts are done", self.uri, len(done))
        self._told(sum(part.length for part in parts if part.number in done))
        done |= self._make([part for part in parts if part.number not in done], upload)
        self._complete(upload, done)

    def is_changed_by_others(self, refusal: StoreRefusedError) -> bool:
        """Tell whether what `run` met may be another attempt's doing."""
        if refusal.code in _OTHERS:
            return True
        return refusal.status == 404 and self._upload not in self._ids()

    def abort_uploads(self) -> None:
        """Abort all uploads of the object."""
        _abort(
            self._store,
            self._place.bucket,
            self._place.key,
            lambda upload: upload.key == self._place.key,
        )

    def _begin_with_source(self, pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
        """Take the first bytes from the first source too, if they are the same there.

        Puffin files begin alike. Four bytes of our own at the start would make the first part an
        uploaded one, which borrows 5 MiB of the first shard.
        """
        if len(pieces) < 2:
            return pieces
        first, second = pieces[:2]
        if not isinstance(first, InlineBytes) or not isinstance(second, CopiedRange):
            return pieces
        if not second.offset == first.length <= 64:
            return pieces
        version = self._recipe.versions[second.source]
        if self._store.read_range(second.source, 0, first.length, version) != first.data:
            return pieces
        return (CopiedRange(second.source, 0, first.length + second.length), *pieces[2:])

    def _ids(self) -> list[str]:
        found = uploads(self._store, self._place.bucket, self._place.key)
        mine = [upload for upload in found if upload.key == self._place.key]
        mine.sort(key=lambda upload: (upload.begun, upload.id))
        return [upload.id for upload in mine]

    def _begun(self) -> str:
        """Return the id of the upload to go on with: the first there is, so that all agree."""
        ids = self._ids()
        if ids:
            return ids[0]
        with answers(self.uri):
            answer = self._store.client.create_multipart_upload(
                **self._object,
                ContentType="application/octet-stream",
                Metadata={OBJECT_PLAN: self._digest},
                **self._store.encryption,
            )
        return str(answer["UploadId"])

    def _done(self, upload: str, parts: tuple[Part, ...]) -> Done:
        """Return the parts an earlier attempt finished."""
        lengths = {part.number: part.length for part in parts}
        done: Done = {}
        with answers(self.uri):
            pages = self._store.client.get_paginator("list_parts")
            for page in pages.paginate(**self._object, UploadId=upload):
                for item in page.get("Parts", ()):
                    if lengths.get(item["PartNumber"]) == item["Size"]:
                        done[item["PartNumber"]] = item["ETag"]
        return done

    def _make(self, parts: list[Part], upload: str) -> Done:
        pool = ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="assemble")
        try:
            futures = {pool.submit(self._make_part, part, upload): part.number for part in parts}
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            # After an error, or when the task is told to end, nothing more is begun.
            pool.shutdown(wait=True, cancel_futures=True)
        return {
            number: future.result() for future, number in futures.items() if not future.cancelled()
        }

    def _make_part(self, part: Part, upload: str) -> ETag:
        made = self._copy(part, upload) if part.copied else self._send(part, upload)
        self._told(part.length)
        return made

    def _copy(self, part: Part, upload: str) -> ETag:
        (piece,) = part.pieces
        if not isinstance(piece, CopiedRange):
            raise TypeError(f"part {part} is not copied")
        source = Location.require(piece.source)
        with answers(f"{piece.source}, copied to {self.uri}"):
            answer: dict[str, Any] = self._store.client.upload_part_copy(
                **self._object,
                UploadId=upload,
                PartNumber=part.number,
                CopySource={"Bucket": source.bucket, "Key": source.key},
                CopySourceRange=f"bytes={piece.offset}-{piece.offset + piece.length - 1}",
                CopySourceIfMatch=self._recipe.versions[piece.source],
            )
        return str(answer["CopyPartResult"]["ETag"])

    def _send(self, part: Part, upload: str) -> ETag:
        data = b"".join(self._fetch(piece) for piece in part.pieces)
        with answers(self.uri):
            answer = self._store.client.upload_part(
                **self._object, UploadId=upload, PartNumber=part.number, Body=data
            )
        return str(answer["ETag"])

    def _fetch(self, piece: Piece) -> bytes:
        if isinstance(piece, InlineBytes):
            return piece.data
        version = self._recipe.versions[piece.source]
        return self._store.read_range(piece.source, piece.offset, piece.length, version)

    def _complete(self, upload: str, done: Done) -> None:
        parts = [{"PartNumber": number, "ETag": etag} for number, etag in sorted(done.items())]
        with answers(self.uri):
            self._store.client.complete_multipart_upload(
                **self._object, UploadId=upload, MultipartUpload={"Parts": parts}
            )
