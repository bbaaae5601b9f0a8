"""No message, record or cause of ours tells a secret, wherever it was quoted."""

import logging
import pickle
import re

import pytest

from puffin_ann import redaction
from puffin_ann.declaration import parse_declaration
from puffin_ann.errors import (
    CatalogUnavailableError,
    DeclarationError,
    StoreRefusedError,
    TableNotFoundError,
)
from puffin_ann.redaction import is_secret_name, redact, remember_secrets, shown_cause
from tests.support.paths import ROOT

SECRET = "S3cretPw"


@pytest.mark.parametrize(
    "told",
    [
        f"mysql+pymysql://svc:{SECRET}@db.internal/iceberg",
        f"jdbc:postgresql://svc:a/b{SECRET}@x@db:5432/lake?a=1",
        f"redis://:{SECRET}@cache:6379",
        f"https://{SECRET}@catalog/v1",
        f"https://store/key?X-Amz-Credential={SECRET}%2F2026&X-Amz-Signature={SECRET}&x=1",
        f"https://account.blob/x?sv=1&sig={SECRET}&se=2",
        f"abfss://box@account/x?sig={SECRET}",
        f"https://catalog/v1?token={SECRET}",
        f"jdbc:sqlserver://db;user=svc;password={SECRET};encrypt=true",
        f"spark.hadoop.fs.s3a.secret.key={SECRET}",
        f"fs.azure.account.key.lake.dfs.core.windows.net: {SECRET}",
        f"{{'s3.secret-access-key': '{SECRET} with words', 'k': 1}}",
        f'{{"access_token":"{SECRET}","b":2}}',
        f'{{\\"client_secret\\": \\"{SECRET}\\"}}',
        f"field 'spark.conf.db.password': ['{SECRET}'] is not allowed",
        f"header.Authorization: Bearer {SECRET}",
        f"sent Bearer {SECRET}, refused",
        f"MY_DB_PASSWORD={SECRET}",
        f"db_pwd={SECRET}",
        f"jdbc:oracle:thin:svc/{SECRET}@db:1521",
        f"https://catalog/v1?key={SECRET}",
        f"mysql://db?user=svc&pass={SECRET}",
        f"header.X-Auth: {SECRET}",
        f"encryption.kms-key={SECRET}",
        f"refused: assertion={SECRET}",
        f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_a_secret_is_known_by_its_place(told):
    assert SECRET not in redact(told)
    assert redaction.HIDDEN in redact(told)


@pytest.mark.parametrize(
    "told",
    [
        "abfss://container@account.dfs.core.windows.net/lake/words/metadata/ann-1.puffin",
        "s3://bucket/mail@home/part-0.parquet",
        "http://host:9000/path@x",
        "field 'key' is missing; known fields are: key, column",
        "search width 64: 12 tokenizers",
        "/etc/passwd: does not end with b'PFA1'",
        "demo.auth.tokens: word is looked for",
        "demo.secrets: nothing is wrong",
        "column 'password': expected a list",
        "4096 tokens: 3 of them",
        "rows by tokens: 4096",
        "password authentication failed for user svc",
        "/lake/tokens/data/part-0.parquet is not a readable Parquet file",
    ],
)
def test_what_is_no_secret_is_told_as_it_is(told):
    assert redact(told) == told


def test_a_secret_of_a_catalog_is_known_by_its_value_wherever_it_is_quoted():
    remember_secrets(
        {
            "credential": f"client:{SECRET}",
            "uri": "mysql://svc:p%40ss-of-the-uri@db/lake",
            "s3": {"secret-access-key": "nested-in-yaml"},
            "s3.access-key-id": "known-to-all",
        }
    )
    said = redact(f"no client {SECRET}, nested-in-yaml, p@ss-of-the-uri; known-to-all")
    assert said == "no client ***, ***, ***; known-to-all"


def test_values_that_were_met_are_bounded_in_number():
    for number in range(1000):
        remember_secrets({"token": f"vended-{number}"})
    assert len(redaction._met) <= 256
    assert redact("vended-999") == "***"


def test_messages_of_errors_hold_no_secret_and_survive_pickling():
    error = TableNotFoundError(f"no mysql://a:{SECRET}@h/db", aside=f"password={SECRET}")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.aside) == ("no mysql://***@h/db", "password=***")
    refused = pickle.loads(pickle.dumps(StoreRefusedError(f"sig={SECRET}", 403)))
    assert SECRET not in repr(refused)


def test_a_cause_that_tells_a_secret_is_not_shown():
    hidden = ValueError(f"mysql://a:{SECRET}@h/db")
    outer = RuntimeError("failed")
    outer.__context__ = hidden
    assert shown_cause(hidden) is None
    assert shown_cause(outer) is None
    assert shown_cause(KeyError("plain")) is not None


def test_a_chain_of_causes_that_is_too_long_to_be_looked_through_is_not_shown():
    error = ValueError(f"mysql://a:{SECRET}@h/db")
    for number in range(50):
        outer = RuntimeError(f"failed {number}")
        outer.__cause__, error = error, outer
    assert shown_cause(error) is None


def test_records_of_our_logger_hold_no_secret(caplog):
    log = logging.getLogger("puffin_ann")
    with caplog.at_level(logging.DEBUG, "puffin_ann"):
        log.debug("asked %s", f"mysql://a:{SECRET}@h/db")
        try:
            raise ValueError(f"token={SECRET}")
        except ValueError:
            log.exception("failed by %s", {"password": SECRET})
    assert SECRET not in caplog.text
    assert "failed by" in caplog.text
    assert "ValueError: token=***" in caplog.text


def test_every_module_logs_by_a_logger_that_is_redacted():
    names = {
        name
        for path in ROOT.glob("include/puffin_ann/**/*.py")
        for name in re.findall(r"getLogger\(([^)]*)\)", path.read_text())
    }
    # The log of a task is Airflow's: what `airflow.failures` writes there is redacted before.
    ours = names - {'"airflow.task"', ""}
    assert '"puffin_ann"' in ours
    for name in ours:
        assert redaction.REDACTION in logging.getLogger(name.strip('"')).filters


@pytest.mark.parametrize("part", ["a.", "token", "://", "token=", "a", "x://", "a:@", "secret: ["])
def test_long_hostile_texts_come_to_an_end(part):
    assert redact(part * (50_000 // len(part)))  # by the square of the length: for minutes


@pytest.mark.parametrize(
    "name",
    [
        "spark.hadoop.fs.s3a.secret.key",
        "spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net",
        "spark.ssl.keyStorePassword",
        "spark.sql.catalog.lake.credential",
        "spark.sql.catalog.lake.token",
        "spark.hadoop.fs.s3a.server-side-encryption.key",
    ],
)
def test_settings_are_secret_by_their_names(name):
    assert is_secret_name(name)
    assert not is_secret_name("spark.executor.memory")


def declared(conf):
    return parse_declaration(
        {"name": "x", "table": "a.b.c", "column": "v", "spark": {"conf": conf}}, source="x.yaml"
    )


def test_a_declared_secret_is_warned_of_by_name_with_the_way_out():
    (warning,) = declared({"fs.s3a.secret.key": SECRET, "spark.cores.max": 2}).warnings
    assert "'fs.s3a.secret.key'" in warning
    assert "environment" in warning
    assert SECRET not in warning
    assert not declared({"fs.s3a.secret.key": "${env.AWS_SECRET_ACCESS_KEY}"}).warnings


def test_a_declaration_is_stored_and_shown_without_its_spark_settings():
    declaration = declared({"fs.s3a.secret.key": SECRET})
    assert SECRET not in declaration.model_dump_json() + repr(declaration) + str(declaration)
    assert "spark" not in declaration.model_dump()
    assert declaration.overridden({"shards": 2}).spark == declaration.spark


def test_a_refused_value_of_a_secret_setting_is_not_repeated():
    with pytest.raises(DeclarationError) as caught:
        declared({"fs.s3a.secret.key": [SECRET, SECRET]})
    assert SECRET not in str(caught.value)
    assert "fs.s3a.secret.key" in str(caught.value)


def test_an_error_of_the_environment_stays_one():
    assert CatalogUnavailableError("x").exit_code == 6
