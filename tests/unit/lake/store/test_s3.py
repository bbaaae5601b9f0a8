import pickle

import pytest
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

from puffin_ann.errors import StoreRefusedError
from puffin_ann.lake.store.s3 import S3, Location, s3_of

URI = "s3://bucket/table/metadata"


@pytest.mark.parametrize(
    ("uri", "place"),
    [
        ("s3://b/k", Location("b", "k")),
        ("s3a://b/deep/k=x%20y z", Location("b", "deep/k=x%20y z")),
        ("s3://b/k?x", None),
        ("s3://b/k#x", None),
        ("s3n://b/", Location("b", "")),
        ("file:///b/k", None),
        ("/b/k", None),
        ("gs://b/k", None),
        ("s3:/b", None),
    ],
)
def test_locations_are_understood(uri, place):
    assert Location.of(uri) == place


class SomeoneElsesFileIO(PyArrowFileIO):
    """May well keep its objects somewhere else."""


def test_only_stores_that_we_can_sign_for_are_talked_to():
    assert s3_of(PyArrowFileIO({}), URI) is not None
    assert s3_of(FsspecFileIO({}), URI) is not None
    assert s3_of(PyArrowFileIO({}), "file:///table/metadata") is None
    assert s3_of(SomeoneElsesFileIO({}), URI) is None
    for beyond in ("s3.signer", "s3.role-arn", "client.role-arn", "s3.anonymous"):
        assert s3_of(PyArrowFileIO({beyond: "true"}), URI) is None


def test_one_client_serves_every_state_of_every_table_of_a_store():
    store = {"s3.endpoint": "http://127.0.0.1:9", "s3.region": "x"}
    one = S3({**store, "write.metadata.path": "s3://b/m", "note": "first"}).client
    assert S3({**store, "note": "second"}).client is one
    assert S3({**store, "s3.session-token": "t"}).client is not one
    assert S3({**store, "s3.endpoint": "http://127.0.0.1:10"}).client is not one


def settled(properties):
    client = S3({"s3.region": "eu-west-1", **properties}).client
    return client, client._request_signer._credentials.get_frozen_credentials()


@pytest.mark.parametrize("prefix", ["s3", "client"])
def test_credentials_are_those_of_the_fileio(prefix):
    client, credentials = settled(
        {
            f"{prefix}.access-key-id": "key",
            f"{prefix}.secret-access-key": "secret",
            f"{prefix}.session-token": "token",
        }
    )
    assert (credentials.access_key, credentials.secret_key, credentials.token) == (
        "key",
        "secret",
        "token",
    )
    assert client.meta.region_name == "eu-west-1"


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [("http://127.0.0.1:9000", "http://127.0.0.1:9000"), ("store:9000", "https://store:9000")],
)
def test_the_endpoint_is_that_of_the_fileio(endpoint, url):
    client, _ = settled(
        {"s3.endpoint": endpoint, "s3.access-key-id": "a", "s3.secret-access-key": "b"}
    )
    assert client.meta.endpoint_url == url
    assert client.meta.config.s3["addressing_style"] == "path"


def test_new_objects_are_encrypted_as_the_fileio_has_them_encrypted():
    store = S3({"s3.server-side-encryption": "aws:kms", "s3.sse-kms-key-id": "k"})
    assert store.encryption == {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "k"}
    assert S3({}).encryption == {}


def test_a_refusal_survives_being_handed_between_processes():
    again = pickle.loads(pickle.dumps(StoreRefusedError("no", 412)))
    assert (str(again), again.status) == ("no", 412)
