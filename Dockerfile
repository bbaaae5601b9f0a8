# The image of every container that runs our code: Airflow, Spark's master and worker, the jobs.
# The slim image has Airflow without providers; what is added is what `make setup` installs, from
# the same lock, so that containers run the versions that the tests run.

ARG AIRFLOW=apache/airflow:slim-3.3.2-python3.11

FROM ${AIRFLOW} AS wheels
USER root
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*
USER airflow
COPY requirements.lock /tmp/
# hnswlib comes as source only; the compiler stays behind in this stage.
RUN sed -n '/^hnswlib==/,/[^\\]$/p' /tmp/requirements.lock >/tmp/hnswlib.lock \
    && pip wheel --no-cache-dir --no-deps --require-hashes --wheel-dir /tmp/wheels --requirement /tmp/hnswlib.lock

FROM ${AIRFLOW}
USER root
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/* \
    && install --directory --owner=airflow --group=root \
        /opt/puffin-ann /opt/airflow/cache /opt/airflow/logs /opt/airflow/shared
USER airflow
COPY --from=wheels /tmp/wheels /tmp/wheels
COPY requirements.lock /tmp/
# --no-deps: the lock is complete, and leaves out pyspark-client, which would overwrite pyspark.
# The lock has the hash of hnswlib's source; the wheel that was just built of it goes in first.
RUN pip install --no-cache-dir --no-deps /tmp/wheels/*.whl \
    && pip install --no-cache-dir --no-deps --require-hashes --requirement /tmp/requirements.lock \
    && pip install --no-cache-dir --no-deps asyncpg==0.32.0 psycopg2-binary==2.9.13
WORKDIR /opt/puffin-ann
# Only what makes `puffin-ann` a command; the code itself is mounted over it.
COPY --chown=airflow:root pyproject.toml README.md LICENSE NOTICE ./
COPY --chown=airflow:root include/puffin_ann include/puffin_ann
RUN pip install --no-cache-dir --no-deps --no-build-isolation --editable .
