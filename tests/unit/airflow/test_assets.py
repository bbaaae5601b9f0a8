"""The Assets that start refreshes: which indexes share one, and what watches it."""


def assets(load_dags) -> dict[str, object]:
    dags = load_dags("refresh")
    return {name: dag.schedule[0] for name, dag in dags.items() if dag.schedule}


def declare(folder, name: str, **changes: str) -> None:
    text = (folder / "words.yaml").read_text()
    refresh = ", ".join(f"{key}: {value}" for key, value in changes.items())
    (folder / f"{name}.yaml").write_text(f"{text}refresh: {{{refresh}}}\n")


def test_indexes_of_one_table_share_it_and_those_of_another_do_not(declarations, load_dags):
    declare(declarations, "names")
    text = (declarations / "words.yaml").read_text()
    (declarations / "other.yaml").write_text(text.replace("glove.words", "glove.other"))
    found = assets(load_dags)
    assert found["ann_refresh_words"] == found["ann_refresh_names"]
    assert found["ann_refresh_words"].uri != found["ann_refresh_other"].uri
    assert hash(found["ann_refresh_words"]) == hash(found["ann_refresh_names"])


def test_the_most_impatient_index_says_how_often_the_table_is_asked(declarations, load_dags):
    declare(declarations, "names", poll_interval="10s", max_lag="5m")
    declare(declarations, "patient", poll_interval="1h", watch="false")
    one = assets(load_dags)["ann_refresh_words"]
    changed, waited = [watcher.trigger.serialize() for watcher in one.watchers]
    assert changed == (
        "puffin_ann.airflow.triggers.table.DataSnapshotTrigger",
        {
            "table": "glove.words",
            "iceberg_conn_id": "demo",
            "branch": "main",
            "poll_interval": 10,
        },
    )
    assert waited[0] == "puffin_ann.airflow.triggers.table.IndexLagTrigger"
    assert waited[1]["lags"] == {"names": 300, "words": 3600}


def test_what_it_names_can_be_made_by_the_triggerer(load_dags):
    from puffin_ann.airflow.triggers import table

    for watcher in assets(load_dags)["ann_refresh_words"].watchers:
        path, arguments = watcher.trigger.serialize()
        made = getattr(table, path.rpartition(".")[2])(**arguments)
        assert made.serialize()[0] == path
        assert made.serialize()[1].items() >= arguments.items()


def test_the_parse_of_a_task_names_the_same_asset(declarations, load_dags, monkeypatch):
    declare(declarations, "names", poll_interval="10s")
    whole = assets(load_dags)["ann_refresh_words"]
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "ann_refresh_words")
    (alone,) = assets(load_dags).values()
    assert alone == whole
    assert [watcher.name for watcher in alone.watchers] == [
        watcher.name for watcher in whole.watchers
    ]
