#!/bin/bash
# As that of Airflow's image: files for root's group, a database that answers, then `bash …`,
# `python …` or a command of Airflow's, with or without its name.
set -euo pipefail
umask 0002
for _ in $(seq "${CONNECTION_CHECK_MAX_COUNT:=20}"); do
    airflow db check && break
    sleep 3
done
case "${1:-}" in
    bash) shift && exec /bin/bash "$@" ;;
    python) shift && exec python "$@" ;;
    airflow) shift ;;
esac
exec airflow "$@"
