"""Several attempts at one object: whoever loses sees what the others made, and goes on with it."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError

from puffin_ann.errors import StoreRefusedError
from puffin_ann.lake.store.assemble import multipart
from puffin_ann.lake.store.assemble.multipart import OBJECT_PLAN, assemble
from puffin_ann.lake.store.assemble.object_plan import ObjectPlan
from puffin_ann.lake.store.s3 import S3, Location

PLACE = Location("bucket", "folder/object")
DATA = b"bytes made here"


def refusal(code: str, status: int) -> ClientError:
    answer = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, "any")


class Upload:
    def __init__(self, metadata: dict[str, str]) -> None:
        self.metadata = metadata
        self.parts: dict[int, tuple[str, bytes]] = {}


class Client:
    """What botocore's client does of multipart uploads, on one bucket in memory.

    As stores that encrypt do, it gives a part that is sent again another tag. `meanwhile` are what
    others do before uploads are completed, once each.
    """

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, dict[str, str]]] = {}
        self.uploads: dict[str, Upload] = {}
        self.meanwhile: list[Callable[[str], object]] = []
        self.sent = 0

    def head_object(self, Bucket: str, Key: str) -> dict[str, Any]:
        if Key not in self.objects:
            raise refusal("404", 404)
        data, metadata = self.objects[Key]
        return {"ContentLength": len(data), "Metadata": metadata}

    def create_multipart_upload(self, Metadata: dict[str, str], **_: Any) -> dict[str, str]:
        name = f"upload-{len(self.uploads)}"
        self.uploads[name] = Upload(Metadata)
        return {"UploadId": name}

    def _of(self, upload: str) -> Upload:
        if upload not in self.uploads:
            raise refusal("NoSuchUpload", 404)
        return self.uploads[upload]

    def upload_part(self, UploadId: str, PartNumber: int, Body: bytes, **_: Any) -> dict[str, str]:
        self.sent += 1
        self._of(UploadId).parts[PartNumber] = (f"tag-{self.sent}", Body)
        return {"ETag": f"tag-{self.sent}"}

    def complete_multipart_upload(
        self, Key: str, UploadId: str, MultipartUpload: dict[str, Any], **_: Any
    ) -> None:
        if self.meanwhile:
            self.meanwhile.pop(0)(UploadId)
        parts = self._of(UploadId).parts
        wanted = {part["PartNumber"]: part["ETag"] for part in MultipartUpload["Parts"]}
        if wanted != {number: tag for number, (tag, _) in parts.items()}:
            raise refusal("InvalidPart", 400)
        self.finish(UploadId)

    def finish(self, upload: str) -> None:
        done = self.uploads.pop(upload)
        data = b"".join(data for _, (_, data) in sorted(done.parts.items()))
        self.objects[PLACE.key] = (data, done.metadata)

    def abort_multipart_upload(self, UploadId: str, **_: Any) -> None:
        self._of(UploadId)
        del self.uploads[UploadId]

    def get_paginator(self, name: str) -> "Pages":
        return Pages(getattr(self, name))

    def list_multipart_uploads(self, **_: Any) -> dict[str, Any]:
        begun = datetime.now(UTC)
        found = [{"Key": PLACE.key, "UploadId": name, "Initiated": begun} for name in self.uploads]
        return {"Uploads": found}

    def list_parts(self, UploadId: str, **_: Any) -> dict[str, Any]:
        parts = self._of(UploadId).parts.items()
        return {
            "Parts": [
                {"PartNumber": number, "Size": len(data), "ETag": tag}
                for number, (tag, data) in parts
            ]
        }


class Pages:
    def __init__(self, page: Callable[..., dict[str, Any]]) -> None:
        self._page = page

    def paginate(self, **arguments: Any) -> list[dict[str, Any]]:
        return [self._page(**arguments)]


@pytest.fixture
def object_plan() -> ObjectPlan:
    object_plan = ObjectPlan(lambda uri: "")
    object_plan.write(DATA)
    return object_plan


@pytest.fixture
def client(monkeypatch) -> Client:
    monkeypatch.setattr(multipart, "WAITS_SECONDS", (0.0, 0.0))
    return Client()


@pytest.fixture
def store(client) -> S3:
    store = S3({})
    store.client = client
    return store


def finished_by_another(client: Client) -> Callable[[str], None]:
    """Another attempt completes the upload; its parts are gone then."""

    def finish(upload: str) -> None:
        client.finish(upload)
        client.uploads[upload] = Upload({})  # some stores list it a moment longer

    return finish


def test_an_attempt_that_another_one_was_faster_than_finds_the_object(store, client, object_plan):
    client.meanwhile = [finished_by_another(client)]
    assemble(store, PLACE, object_plan)
    assert client.objects[PLACE.key] == (DATA, {OBJECT_PLAN: object_plan.digest()})
    assert not client.uploads
    assert client.sent == 1


def test_every_byte_of_a_new_object_is_told_once(store, client, object_plan):
    told = []
    assemble(store, PLACE, object_plan, told.append)
    assert sum(told) == len(DATA)


def test_parts_that_another_attempt_sent_again_are_taken_as_they_are_now(
    store, client, object_plan
):
    client.meanwhile = [lambda upload: client.upload_part(upload, 1, DATA)]
    assemble(store, PLACE, object_plan)
    assert client.objects[PLACE.key][0] == DATA
    assert not client.uploads
    assert client.sent == 2


def test_an_upload_that_another_attempt_aborted_is_begun_again(store, client, object_plan):
    client.meanwhile = [lambda upload: client.abort_multipart_upload(upload)]
    assemble(store, PLACE, object_plan)
    assert client.objects[PLACE.key][0] == DATA
    assert not client.uploads


def test_a_refusal_does_not_count_once_the_object_is_there(store, client, object_plan):
    """Such as of a source that whoever was faster has published and cleaned away."""

    def fall_behind(upload: str) -> None:
        client.finish(upload)
        raise refusal("NoSuchKey", 404)

    client.meanwhile = [fall_behind]
    assemble(store, PLACE, object_plan)
    assert client.objects[PLACE.key][0] == DATA


def test_what_the_store_goes_on_to_refuse_is_told_and_leaves_nothing(store, client, object_plan):
    client.meanwhile = [lambda upload: client.upload_part(upload, 1, DATA)] * 3
    with pytest.raises(StoreRefusedError, match="InvalidPart"):
        assemble(store, PLACE, object_plan)
    assert not client.uploads
    assert PLACE.key not in client.objects
