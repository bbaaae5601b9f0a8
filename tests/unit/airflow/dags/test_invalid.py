"""Declarations that are not valid: each has a DAG that says what is wrong, and harms no other."""

import pytest
from airflow.sdk.exceptions import AirflowFailException


class TestInvalidDeclaration:
    @pytest.fixture
    def dags(self, declarations, load_dags):
        (declarations / "broken.yaml").write_text("table: demo.glove.words\nshards: 0\n")
        return load_dags()

    def test_it_leaves_the_others_alone(self, dags):
        assert set(dags) == {"ann_build_words", "ann_build_broken"}
        assert "invalid-declaration" not in dags["ann_build_words"].tags

    def test_it_is_named_after_the_file_and_tagged(self, dags):
        broken = dags["ann_build_broken"]
        assert {"puffin-ann", "invalid-declaration"} <= set(broken.tags)
        assert "'shards'" in broken.doc_md

    def test_its_only_task_fails_with_what_is_wrong_and_is_not_tried_again(self, dags):
        (task,) = dags["ann_build_broken"].tasks
        assert task.retries == 0
        with pytest.raises(AirflowFailException, match=r"broken\.yaml.*'column'.*'shards'.*0"):
            task.python_callable()

    @pytest.mark.parametrize("text", ["{", "- 1", "", "name: Words\n", "\x00"])
    def test_whatever_the_file_holds_it_never_takes_the_other_dags_away(
        self, declarations, load_dags, text
    ):
        (declarations / "broken.yaml").write_text(text)
        dags = load_dags()
        assert set(dags) == {"ann_build_words", "ann_build_broken"}
        assert "invalid-declaration" in dags["ann_build_broken"].tags

    @pytest.mark.parametrize("first", ["aardvark", "zebra"])
    def test_a_name_declared_twice_is_nobodys(self, declarations, load_dags, first):
        text = (declarations / "words.yaml").read_text()
        (declarations / f"{first}.yaml").write_text(text + "name: words\n")
        (dag,) = load_dags().values()
        assert dag.dag_id == "ann_build_words"
        said = rf"{first}\.yaml.*each declares index 'words'"
        with pytest.raises(AirflowFailException, match=said):
            dag.tasks[0].python_callable()
        for kind in ("refresh", "maintain", "evaluate"):
            assert load_dags(kind) == {}

    @pytest.mark.parametrize("stem", ["good copy", "good(1)", "x" * 245, "gut-ä.1"])
    def test_whatever_the_files_name_its_dag_has_an_id_that_airflow_takes(
        self, declarations, load_dags, stem
    ):
        (declarations / f"{stem}.yaml").write_text("shards: 0")
        dags = load_dags()
        assert len(dags) == 2
        assert "invalid-declaration" not in dags["ann_build_words"].tags

    def test_a_file_named_as_another_index_does_not_take_its_place(self, declarations, load_dags):
        text = (declarations / "words.yaml").read_text()
        (declarations / "zebra.yaml").write_text(text + "name: broken\n")
        (declarations / "broken.yaml").write_text("shards: 0")
        (declarations / "broken.yml").write_text("shards: 0")
        dags = load_dags()
        assert len(dags) == 4
        tags = [dags[f"ann_build_{name}"].tags for name in ("words", "broken")]
        assert not any("invalid-declaration" in tag for tag in tags)
