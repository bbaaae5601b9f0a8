import datetime
from typing import get_args

import pytest

from puffin_ann.declaration import (
    PARAMETERS,
    IndexDeclaration,
    VamanaParameters,
    declaration_files,
    load_declaration,
    load_declarations,
    parse_declaration,
    read_declarations,
)
from puffin_ann.declaration.fields.complaints import in_words
from puffin_ann.declaration.fields.model import Model
from puffin_ann.errors import DeclarationError
from puffin_ann.settings import settings

SMALLEST = {"name": "words", "table": "demo.glove.words", "column": "embedding"}


def test_the_smallest_declaration_gets_working_defaults():
    declaration = parse_declaration(SMALLEST, source="words.yaml")
    assert declaration.parameters == VamanaParameters()
    assert declaration.partitions == declaration.shards * declaration.partitions_per_shard


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"shards": 0}, ["'shards'", "0", "greater than or equal to 1"]),
        ({"parameters": {"R": 2}}, ["'parameters.R'", "2", "greater than or equal to 4"]),
        ({"parameters": {"M": 16}}, ["'parameters.M'", "unknown"]),
        ({"algorithm": "hsnw"}, ["'algorithm'", "'hsnw'", "'vamana'"]),
        ({"metric": "manhattan"}, ["'metric'", "'manhattan'", "'cosine'"]),
        ({"colour": 1}, ["'colour'", "unknown", "recall_target"]),
        ({"table": "words"}, ["'table'", "'words'"]),
        ({"recall_target": 2}, ["'recall_target'", "2", "less than or equal to 1"]),
        ({"name": "Words!"}, ["'name'", "'Words!'"]),
        ({"table": "a.b." + 997 * "c"}, ["'table'", "at most 1000 characters"]),
        ({"refresh": {"poll_interval": "00s"}}, ["'refresh.poll_interval'", "'00s'"]),
        ({"spark": {"conn_id": ""}}, ["'spark.conn_id'", "''", "at least 1 character"]),
        ({"algorithm": ["vamana"]}, ["'algorithm'", "['vamana']", "'vamana'"]),
        ({"algorithm": {"vamana": 1}}, ["'algorithm'"]),
        ({"parameters": [1]}, ["'parameters"]),
        ({"rebuild": {"drift": float("inf")}}, ["'rebuild.drift'", "inf", "finite"]),
        ({"recall_target": float("nan")}, ["'recall_target'", "nan", "finite"]),
        ({"schedule": "x y"}, ["'schedule'", "'x y'", "five fields"]),
        ({"schedule": 5}, ["'schedule'", "5", "text"]),
        ({"maintain": {"schedule": "nope"}}, ["'maintain.schedule'", "'nope'", "five fields"]),
        ({"evaluate": {"schedule": "@nightly"}}, ["'evaluate.schedule'", "@daily"]),
        ({"gate": {"kk": 5}}, ["'gate.kk'", "fields of 'gate' are: queries, k"]),
        (
            {"algorithm": "hnsw", "parameters": {"R": 16}},
            ["'parameters.R' is unknown; known parameters of 'hnsw' are: M, ef_construction, repr"],
        ),
        ({"algorithm": "hsnw", "parameters": {"N": 16}}, ["'hsnw'", "'vamana'"]),
        ({"algorithm": "exact", "parameters": {"R": 16}}, ["parameters of 'exact' are: none"]),
        ({"spark": {"conf": {"a": datetime.date(2026, 1, 1)}}}, ["'spark.conf.a'", "text"]),
    ],
)
def test_a_bad_value_is_refused_by_file_field_value_and_what_is_allowed(change, parts):
    with pytest.raises(DeclarationError) as caught:
        parse_declaration({**SMALLEST, **change}, source="include/indexes/words.yaml")
    for part in ["include/indexes/words.yaml", *parts]:
        assert part in str(caught.value)


def numbers(model, *path):
    """Give the path of every field of a model that takes a number."""
    for name, field in model.model_fields.items():
        kinds = {field.annotation, *get_args(field.annotation)}
        if {int, float} & kinds:
            yield (*path, name)
        for kind in kinds:
            if isinstance(kind, type) and issubclass(kind, Model) and name != "parameters":
                yield from numbers(kind, *path, name)


NUMBERS = [("vamana", path) for path in numbers(IndexDeclaration)] + [
    (name, path) for name, model in PARAMETERS.items() for path in numbers(model, "parameters")
]


@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize(("algorithm", "path"), NUMBERS)
def test_true_and_false_are_no_numbers(algorithm, path, value):
    change = value
    for name in reversed(path):
        change = {name: change}
    with pytest.raises(DeclarationError) as caught:
        parse_declaration({**SMALLEST, "algorithm": algorithm, **change}, source="f.yaml")
    assert str(caught.value) == (
        f"f.yaml: field {'.'.join(path)!r}: {value} is not allowed: "
        "a number is expected, not true or false"
    )


def test_every_kind_of_number_is_among_those():
    paths = {path for _, path in NUMBERS}
    wanted = {"shards", "recall_target", "seed", "refresh.min_rows", "gate.k", "rebuild.drift"}
    wanted |= {"parameters.pq_m", "parameters.alpha", "parameters.lists", "parameters.M"}
    assert wanted <= {".".join(path) for path in paths}


def test_switches_are_still_true_or_false():
    declared = {**SMALLEST, "refresh": {"watch": False}}
    assert parse_declaration(declared, source="f.yaml").refresh.watch is False


@pytest.mark.parametrize(
    ("text", "shards"), [("4", 4), ("4.0", 4), ("'4'", 4), ("'4.0'", 4), ("0b11", 3)]
)
def test_numbers_without_a_fraction_are_whole_however_they_are_written(tmp_path, text, shards):
    path = tmp_path / "words.yaml"
    path.write_text(f"table: c.n.t\ncolumn: v\nshards: {text}\n")
    declared = load_declaration(path)
    assert declared.shards == shards
    assert type(declared.shards) is int
    same = parse_declaration(
        {**SMALLEST, "table": "c.n.t", "column": "v", "shards": shards}, source=""
    )
    assert declared.fingerprint() == same.fingerprint()


@pytest.mark.parametrize("text", ["4.5", "'4.5'", "four", "''", "1e400", "[4]", "2020-01-01"])
def test_what_is_no_whole_number_is_refused_where_one_is_needed(tmp_path, text):
    path = tmp_path / "words.yaml"
    path.write_text(f"table: c.n.t\ncolumn: v\nshards: {text}\n")
    with pytest.raises(DeclarationError, match=r"words\.yaml: field 'shards': .* is not allowed"):
        load_declaration(path)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("metric: 0x" + "f" * 5000, "'metric': a number of thousands of digits is not allowed"),
        ("refresh: {min_rows: 0x" + "f" * 5000 + "}", "'refresh.min_rows': a number of thousands"),
        ("refresh: {min_rows: 9223372036854775808}", "less than or equal to 9223372036854775807"),
        ("metric: " + "x" * 9000, "x... is not allowed"),
        ("metric: !!bool 1", "not of the type that its tag names"),
        ("metric: !!timestamp x", "not of the type that its tag names"),
        ("refresh: {max_lag: '１h'}", "'refresh.max_lag': '１h' is not allowed"),
    ],
)
def test_values_that_nobody_means_are_refused_in_a_sentence(tmp_path, text, told):
    path = tmp_path / "words.yaml"
    path.write_text(f"table: c.n.t\ncolumn: v\n{text}\n")
    with pytest.raises(DeclarationError) as caught:
        load_declaration(path)
    assert told in str(caught.value)
    assert len(str(caught.value)) < 500


def test_fields_of_the_declaration_are_not_listed_as_an_algorithms_parameters():
    with pytest.raises(DeclarationError) as caught:
        parse_declaration({**SMALLEST, "parameters": {"M": 16}}, source="f.yaml")
    assert "known parameters of 'vamana' are: R, L, alpha" in str(caught.value)
    assert "recall_target" not in str(caught.value)


def test_a_missing_field_is_named():
    with pytest.raises(DeclarationError, match="field 'column' is missing"):
        parse_declaration({"name": "a", "table": "c.n.t"}, source="f.yaml")


@pytest.mark.parametrize("text", ["- a\n- b\n", "just text", ""])
def test_a_file_that_is_no_mapping_is_refused(tmp_path, text):
    path = tmp_path / "index.yaml"
    path.write_text(text)
    with pytest.raises(DeclarationError, match=r"index\.yaml: expected a mapping"):
        load_declaration(path)


def test_broken_yaml_is_refused_with_the_place(tmp_path):
    path = tmp_path / "index.yaml"
    path.write_text("table: [unclosed\n")
    with pytest.raises(DeclarationError, match=r"(?s)index\.yaml: is not valid YAML.*line"):
        load_declaration(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "table: a.b.c\nshards: 1\nshards: 2\n",
            "'shards' is given twice, in line 2 and in line 3",
        ),
        ("gate:\n  k: 5\n  'k': 6\n", "'k' is given twice, in line 2 and in line 3"),
        ("spark: {conf: {a: 1, b: 2, a: 3}}\n", "'a' is given twice, in line 1"),
        ("- a: &x {k: 1}\n- *x\n- {k: 1, k: 1}\n", "'k' is given twice"),
        ("table: 2026-99-99\n", "is not valid YAML"),
        ("a: 1\n---\nb: 2\n", "is not valid YAML"),
        ("? [a]\n: 1\n", "is not valid YAML"),
        ("[" * 5000, "index.yaml: is"),
        ("[" * 60_000, "is nested too deeply"),
        ("- " * 30_000, "is nested too deeply"),
    ],
)
def test_yaml_that_says_two_things_or_none_is_refused(tmp_path, text, message):
    path = tmp_path / "index.yaml"
    path.write_text(text)
    with pytest.raises(DeclarationError) as caught:
        load_declaration(path)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("first", "more"),
    [("[x, x, x, x, x, x, x, x, x]", "[{}]"), ("{a: x}", "{{<<: [{}]}}")],
    ids=["lists", "merged"],
)
def test_a_few_lines_that_stand_for_all_memory_are_refused(tmp_path, first, more):
    lines = [f"  - &a0 {first}"]
    for number in range(9):
        lines.append(f"  - &a{number + 1} " + more.format(", ".join([f"*a{number}"] * 9)))
    path = tmp_path / "index.yaml"
    path.write_text("table: a.b.c\ncolumn: v\nshards:\n" + "\n".join(lines))
    with pytest.raises(DeclarationError, match="aliases expand to more than 100,000 values"):
        load_declaration(path)


@pytest.mark.parametrize("text", ["shards: &x [*x]", "spark: &x {conf: *x}", "gate: &x {k: *x}"])
def test_an_alias_of_what_it_stands_in_is_refused(tmp_path, text):
    path = tmp_path / "index.yaml"
    path.write_text(f"table: a.b.c\ncolumn: v\n{text}\n")
    with pytest.raises(DeclarationError, match="is not allowed"):
        load_declaration(path)


def test_anchors_and_merged_mappings_are_no_keys_given_twice(tmp_path):
    path = tmp_path / "index.yaml"
    path.write_text(
        "table: a.b.c\ncolumn: v\nrefresh: &r {min_rows: 5}\n"
        "spark: {conf: {<<: {a: 1, b: 2}, a: 3}}\ngate: {k: 5}\n"
    )
    found = load_declaration(path)
    assert (found.refresh.min_rows, found.spark.conf) == (5, {"a": "3", "b": "2"})


def test_the_name_defaults_to_the_files_stem(tmp_path):
    path = tmp_path / "songs.yaml"
    path.write_text("table: c.n.t\ncolumn: v\n")
    assert load_declaration(path).name == "songs"


def test_two_declarations_of_one_name_are_refused(tmp_path):
    for stem in ("a", "b"):
        (tmp_path / f"{stem}.yaml").write_text("name: same\ntable: c.n.t\ncolumn: v\n")
    with pytest.raises(
        DeclarationError, match=r"a\.yaml and .*b\.yaml: .* each declares index 'same'"
    ):
        load_declarations(tmp_path)


def test_of_a_name_that_files_share_their_error_is_told_and_not_that_none_declares_it(tmp_path):
    for stem in ("a", "b", "c"):
        (tmp_path / f"{stem}.yaml").write_text("name: same\ntable: c.n.t\ncolumn: v\n")
    (tmp_path / "other.yaml").write_text("table: c.n.t\ncolumn: v\n")
    found = read_declarations(tmp_path)
    assert found.require("other").name == "other"
    (problem,) = found.problems
    assert all(f"{tmp_path / stem}.yaml" in str(problem) for stem in ("a", "b", "c"))
    with pytest.raises(DeclarationError) as told:
        found.require("same")
    assert told.value is problem


def test_a_bad_file_hides_no_other_declaration(tmp_path):
    for file, name in (("a", "a"), ("c", "c"), ("d", "c")):
        (tmp_path / f"{file}.yaml").write_text(f"name: {name}\ntable: c.n.t\ncolumn: v\n")
    (tmp_path / "b.yaml").write_text("metric: [")
    found = read_declarations(tmp_path)
    assert [declaration.name for declaration in found.valid] == [
        "a"
    ]  # which of two files counts is not known
    assert [str(problem).split(":")[0] for problem in found.problems] == [
        str(tmp_path / "b.yaml"),
        f"{tmp_path / 'c.yaml'} and {tmp_path / 'd.yaml'}",
    ]
    assert found.require("a").name == "a"
    with pytest.raises(DeclarationError, match=r"no index named 'b' is declared in [^;]*$") as told:
        found.require("b")
    assert told.value.aside.startswith("declared are: a; ")
    assert "b.yaml: is not valid YAML" in told.value.aside


def test_the_declarations_we_ship_are_valid():
    (folder,) = settings().declarations_dir
    assert len(load_declarations(folder)) == len(declaration_files(folder)) > 0


def test_a_way_to_publish_that_was_one_once_is_taken_for_auto_with_a_warning():
    fields = {"name": "words", "table": "demo.glove.words", "column": "embedding"}
    found = parse_declaration({**fields, "publish": "snapshot"}, source="test")
    assert found.publishes_by == "auto"
    (warning,) = found.warnings
    assert "'words': field 'publish': 'snapshot' is no way to publish any more" in warning
    for way in ("auto", "tag", "statistics"):
        declared = parse_declaration({**fields, "publish": way}, source="test")
        assert (declared.publishes_by, declared.warnings) == (way, ())


def test_only_what_shapes_the_index_changes_the_fingerprint():
    one = parse_declaration(SMALLEST, source="f")
    same = {**SMALLEST, "recall_target": 0.9, "schedule": "@daily", "gate": {"queries": 50}}
    assert parse_declaration(same, source="f").fingerprint() == one.fingerprint()
    for change in ({"shards": 3}, {"parameters": {"R": 32}}, {"metric": "l2"}, {"seed": 1}):
        other = parse_declaration({**SMALLEST, **change}, source="f")
        assert other.fingerprint() != one.fingerprint()


def test_a_runs_overrides_replace_fields_and_parameters_and_are_validated():
    declaration = parse_declaration(SMALLEST, source="f")
    changed = declaration.overridden({"shards": 4, "R": 32, "L": None})
    assert (changed.shards, changed.parameters.R, changed.parameters.L) == (4, 32, 100)
    with pytest.raises(DeclarationError, match=r"'parameters\.R'.*1"):
        declaration.overridden({"R": 1})
    with pytest.raises(DeclarationError, match="'table' cannot be set for a run"):
        declaration.overridden({"table": "other.n.t"})


def test_spark_configuration_may_be_written_as_numbers():
    declaration = parse_declaration(
        {**SMALLEST, "spark": {"conf": {"spark.cores.max": 2, "spark.ui.enabled": False}}},
        source="f",
    )
    assert declaration.spark.conf == {"spark.cores.max": "2", "spark.ui.enabled": "false"}


class TestAllowedSparkSettings:
    @pytest.fixture
    def declared(self, tmp_path, monkeypatch):
        """Read a file with some settings of Spark where some may be made."""

        def read(allowed: str, *given: str) -> IndexDeclaration:
            conf = "".join(f"    {key}: a\n" for key in given)
            path = tmp_path / "words.yaml"
            path.write_text(f"table: demo.glove.words\ncolumn: e\nspark:\n  conf:\n{conf}")
            monkeypatch.setenv("PUFFIN_ANN_SPARK_CONF_ALLOWED", allowed)
            settings.cache_clear()
            return load_declaration(path)

        yield read
        settings.cache_clear()

    @pytest.mark.parametrize(
        "allowed", ["spark.executor.*,spark.ui.enabled", "spark.executor.* spark.ui.*", "*"]
    )
    def test_what_is_on_the_list_may_be_set(self, declared, allowed):
        found = declared(allowed, "spark.executor.memory", "spark.ui.enabled")
        assert set(found.spark.conf) == {"spark.executor.memory", "spark.ui.enabled"}

    @pytest.mark.parametrize("allowed", ["spark.executor.*", "", "spark.jar", "SPARK.JARS"])
    def test_what_is_not_is_refused_by_file_setting_and_list(self, declared, allowed):
        with pytest.raises(DeclarationError) as refused:
            declared(allowed, "spark.jars")
        for part in ("words.yaml", "'spark.jars'", allowed, "PUFFIN_ANN_SPARK_CONF_ALLOWED"):
            assert part in str(refused.value)

    def test_a_declaration_that_sets_none_needs_none(self, tmp_path, monkeypatch):
        monkeypatch.setenv("PUFFIN_ANN_SPARK_CONF_ALLOWED", "")
        settings.cache_clear()
        (tmp_path / "words.yaml").write_text("table: demo.glove.words\ncolumn: e\n")
        assert load_declaration(tmp_path / "words.yaml").spark.conf == {}


@pytest.mark.parametrize(
    ("algorithm", "form"),
    [
        ("vamana", "int8"),
        ("hnsw", "none"),
        ("exact", "none"),
        ("centroid", "float16"),
        ("auto", "none"),
    ],
)
def test_forms_that_an_algorithm_cannot_do_with_are_refused_by_name(algorithm, form):
    declared = {
        "name": "n",
        "table": "c.n.t",
        "column": "v",
        "algorithm": algorithm,
        "vectors": form,
    }
    with pytest.raises(
        DeclarationError, match=f"'vectors': '{form}' is not for algorithm '{algorithm}'"
    ):
        parse_declaration(declared, source="f")


def test_an_index_of_float32_has_the_fingerprint_that_it_had_before_there_were_forms():
    one = parse_declaration({"name": "n", "table": "c.n.t", "column": "v"}, source="f")
    assert "vectors" not in one.shape()
    other = one.model_copy(update={"vectors": "float16"})
    assert other.fingerprint() != one.fingerprint()


def _patterns(schema: object) -> set[str]:
    if isinstance(schema, dict):
        own = {schema["pattern"]} if isinstance(schema.get("pattern"), str) else set()
        return own.union(*map(_patterns, schema.values()))
    return set().union(*map(_patterns, schema)) if isinstance(schema, list) else set()


def test_every_pattern_of_a_declaration_is_told_in_words():
    patterns = _patterns(IndexDeclaration.model_json_schema())
    assert len(patterns) > 3
    for pattern in patterns:
        told = in_words({"type": "string_pattern_mismatch", "msg": "", "ctx": {"pattern": pattern}})
        assert told.startswith("it should"), pattern


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("name", "a b", "lower-case letter"),
        ("table", "shop.products", "a catalog, a namespace and a table"),
        ("shards", "many", "a whole number"),
        ("include", "price", "a list"),
        ("refresh", {"max_lag": "soon"}, "as in '15m'"),
    ],
)
def test_what_a_field_should_be_is_told_in_words(field, value, told):
    with pytest.raises(DeclarationError) as error:
        parse_declaration({**SMALLEST, field: value}, source="x.yaml")
    assert told in str(error.value)
    assert "pattern" not in str(error.value)
    assert "Input" not in str(error.value)
