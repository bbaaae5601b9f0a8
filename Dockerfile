# The image of every container that runs our code: Airflow, Spark's master and workers, the jobs.
# Airflow's slim image has no providers; what is added has the versions that the tests run, without
# the tools that they need.

ARG AIRFLOW=apache/airflow:slim-3.3.2-python3.11

# What has to be built: the tools for it stay behind in this stage.
FROM ${AIRFLOW} AS wheels
USER root
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*
USER airflow
WORKDIR /tmp/wheels
COPY deploy/image.lock deploy/build.lock /tmp/locks/
# hnswlib comes as source only. Left to itself it is compiled for this very processor, and dies on
# an older one.
RUN sed -n '/^hnswlib==/,/[^\\]$/p' /tmp/locks/image.lock >/tmp/hnswlib.lock \
    && HNSWLIB_NO_NATIVE=1 pip wheel --no-cache-dir --no-deps --require-hashes \
        --wheel-dir packages --requirement /tmp/hnswlib.lock
WORKDIR /tmp/source
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY include/puffin_ann include/puffin_ann
RUN python -m venv /tmp/hatchling \
    && /tmp/hatchling/bin/pip install --no-cache-dir --require-hashes --requirement /tmp/locks/build.lock \
    && /tmp/hatchling/bin/hatchling build -t wheel -d /tmp/wheels/ours

FROM ${AIRFLOW}
USER root
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/* \
    && install --directory --owner=airflow --group=root \
        /opt/puffin-ann \
        /opt/airflow/cache /opt/airflow/logins /opt/airflow/logs /opt/airflow/secrets \
        /opt/airflow/spark-events
USER airflow
# --no-deps: the lock is complete, and leaves out pyspark-client, which would overwrite pyspark.
# The lock has the hash of hnswlib's source; the wheel that was built of it goes in first.
RUN --mount=from=wheels,source=/tmp/wheels/packages,target=/tmp/wheels \
    --mount=from=wheels,source=/tmp/locks,target=/tmp/locks \
    pip install --no-cache-dir --no-deps /tmp/wheels/*.whl \
    && pip install --no-cache-dir --no-deps --require-hashes --requirement /tmp/locks/image.lock
# Airflow's image comes without bytecode, which each container would make for itself when it starts.
# Some packages have files that are no modules: those are left out.
RUN python -m compileall -q -j 0 "$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" \
    || true
# Kernels for every processor that containers meet: no first build or search waits for them. They
# are kept between builds of the image, and compiled anew where their sources have changed.
RUN --mount=from=wheels,source=/tmp/wheels/ours,target=/tmp/wheels \
    --mount=type=cache,target=/tmp/kernels,uid=50000,mode=0755 \
    pip install --no-cache-dir --no-deps /tmp/wheels/*.whl \
    && case "$(uname -m)" in x86_64) levels="vbmi avx2" ;; *) levels=portable ;; esac \
    && PUFFIN_ANN_CACHE_DIR=/tmp/compiling \
        puffin-ann compile --to /tmp/kernels $(printf -- '--for %s ' $levels) \
    && made=$(python -c 'from puffin_ann.settings import *; print(settings().kernels_dir / kernels_leaf())') \
    && mkdir -p "$(dirname "$made")" \
    && cp -r "/tmp/kernels/$(basename "$made")" "$made" \
    && rm -rf /tmp/compiling
WORKDIR /opt/puffin-ann
