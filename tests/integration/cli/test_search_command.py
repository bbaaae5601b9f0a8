import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from puffin_ann.search.index import Index
from puffin_ann.settings import settings
from tests.support.lifecycle import builds


def search(cli, *options: str, width: int = 200) -> tuple[int, str, str]:
    return cli("search", "test.demo.words", builds.INDEX, *options, width=width)


def test_search_by_key_leaves_the_row_itself_out(cli, keyed):
    code, out, _ = search(
        cli, "--key", "word=w5", "--k", "3", *("--columns", "word", "--columns", "id"), "--json"
    )
    found = json.loads(out)
    assert code == 0
    assert [row["rank"] for row in found["answers"]] == [1, 2, 3]
    assert 5 not in [row["id"] for row in found["answers"]]
    ids, vectors = builds.live(keyed)
    exact = builds.distances("l2", vectors[ids.tolist().index(5)], vectors)
    assert found["answers"][0]["distance"] == pytest.approx(np.sort(exact)[1], rel=1e-6)
    assert found["coverage"] == 1.0


def test_search_by_key_finds_the_twin_of_a_row(cli, keyed):
    code, out, _ = search(cli, "--key", "id=6", "--k", "1", "--columns", "id", "--json")
    (answer,) = json.loads(out)["answers"]
    assert (code, answer["id"], answer["distance"]) == (0, 7, 0.0)


def test_several_keys_with_one_column_stand_side_by_side(cli, keyed):
    code, out, _ = search(cli, "--key", "word=w1", "--key", "word=w2", "--columns", "word")
    assert code == 0
    header = next(line for line in out.splitlines() if "rank" in line)
    assert "w1" in header
    assert "w2" in header
    assert len([line for line in out.splitlines() if line.strip()[:2].strip().isdigit()]) == 10


def test_of_many_keys_as_many_stand_side_by_side_as_fit(cli, keyed):
    keys = [part for number in range(4) for part in ("--key", f"word=w{number}")]
    code, out, _ = search(cli, *keys, "--columns", "word", "--k", "3", width=40)
    assert code == 0
    assert out.count("rank") > 1
    assert out.count("with distance") == 1
    assert len(re.findall(r"\bw\d+  \d\.\d{3}\b", out)) == 4 * 3, "nothing is cut"


def test_four_words_stand_side_by_side_in_a_terminal_of_80_columns(cli, keyed):
    keys = [part for number in range(4) for part in ("--key", f"word=w{number}")]
    _, out, _ = search(cli, *keys, "--columns", "word", "--k", "3", width=57)
    assert out.count("rank") == 1, "no edges take the room of a word"


def test_search_by_vectors_of_a_file(cli, keyed, tmp_path):
    queries = np.random.default_rng(2).normal(size=(2, builds.DIMENSION)).astype(np.float32)
    np.save(tmp_path / "q.npy", queries)
    (tmp_path / "q.json").write_text(json.dumps(queries[0].tolist()))
    code, out, _ = search(cli, "--vector", str(tmp_path / "q.npy"), "--k", "2", "--json")
    both = json.loads(out)["answers"]
    assert (code, [row["query"] for row in both]) == (0, [0, 0, 1, 1])
    code, out, _ = search(cli, "--vector", str(tmp_path / "q.json"), "--k", "2", "--json")
    assert (code, json.loads(out)["answers"]) == (0, both[:2])


def test_search_at_a_snapshot(cli, keyed):
    old = keyed.current_snapshot().snapshot_id
    keyed.overwrite(builds.rows(range(200, 210)))
    _, out, _ = search(cli, "--key", "id=200", "--k", "9", "--columns", "id", "--json")
    assert {row["id"] for row in json.loads(out)["answers"]} == set(range(201, 210))
    options = ("--snapshot", str(old), "--key", "id=5", "--columns", "id", "--json")
    _, out, _ = search(cli, *options)
    assert all(row["id"] < 60 for row in json.loads(out)["answers"])


def test_search_at_a_branch_or_tag(cli, keyed):
    old = keyed.current_snapshot().snapshot_id
    keyed.manage_snapshots().create_tag(snapshot_id=old, tag_name="before").commit()
    keyed.manage_snapshots().create_branch(snapshot_id=old, branch_name="audit").commit()
    keyed.overwrite(builds.rows(range(200, 210)))
    for ref in ("before", "audit"):
        options = ("--ref", ref, "--key", "id=5", "--columns", "id", "--json")
        found = json.loads(search(cli, *options)[1])
        assert found["snapshot"] == old
        assert all(row["id"] < 60 for row in found["answers"])
    found = json.loads(search(cli, "--ref", "main", "--key", "id=200", "--k", "9", "--json")[1])
    assert found["snapshot"] == keyed.refresh().current_snapshot().snapshot_id


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--key", "word=w5", "--k", "0"), 2, "k is 0"),
        (
            ("--key", "word=w5", "--k", "60"),
            2,
            "k is 60, but only 59 other live rows can be answered; --al",
        ),
        (
            ("--key", "word=w5", "--where", "id < 3"),
            2,
            "only 3 other live rows can be answered under the condition 'id < 3'",
        ),
        (("--key", "word=nothing"), 3, "no live row has this key"),
        (("--key", "color=red"), 3, "no top-level column 'color'"),
        (("--key", "id=five"), 2, "id='five' cannot be looked up"),
        (("--key", "w5"), 2, "expected COLUMN=VALUE"),
        ((), 2, "give either --vector FILE or --key"),
        (("--vector", "/nowhere.npy"), 2, "/nowhere.npy: cannot be read"),
        (("--vector", "/nowhere.txt"), 2, ".npy or .json"),
        (("--key", "word=w5", "--columns", "price"), 3, "no column 'price'"),
        (("--key", "word=w5", "--snapshot", "7"), 3, "no snapshot 7"),
        (("--key", "word=w5", "--ref", "audit"), 3, "no branch or tag 'audit'; it has: main"),
        (("--key", "word=w5", "--ref", "main", "--snapshot", "7"), 2, "not both"),
        (("--key", "word=w5", "--columns", "id, word,id"), 2, "columns: 'id' named twice"),
        (("--key", "word=w5", "--k", "3", "--within", "0.5"), 2, "either --k"),
        (
            ("--key", "word=w5", "--within", "1", "--exhaustive"),
            2,
            "either --exhaustive, how to find the nearest rows, or --within",
        ),
        (
            ("--key", "word=w5", "--within", "1", "--allow-fewer"),
            2,
            "either --allow-fewer, fewer rows than --k says, or --within",
        ),
        (
            ("--key", "word=w5", "--k", "9", "--where", "id in (4, 5)"),
            2,
            "only 1 other live row can be answered under",
        ),
        (("--key", "word=w5", "--width", "0"), 2, "width is 0; it must be at least 1"),
        (("--key", "word=w5", "--width", "-3"), 2, "width is -3; it must be at least 1"),
        (("--key", "word=w5", "--width", "1000000000000"), 2, "it must be at most 1048576"),
        (("--key", "word=w5", "--probe-partitions", "0"), 2, "probe_partitions is 0; it must be"),
        (("--key", "word=w5", "--width", "9", "--within", "1"), 2, "either --width, how wide"),
        (
            ("--key", "word=w5", "--probe-partitions", "1", "--within", "1"),
            2,
            "either --probe-partitions, how far to search, or --within",
        ),
    ],
)
def test_bad_searches_end_with_one_line_and_an_exit_code(cli, keyed, arguments, code, message):
    left, out, err = search(cli, *arguments)
    assert left == code
    assert message in err
    assert err.startswith("error: ")
    assert "Traceback" not in out + err


def test_more_neighbours_than_rows_are_refused_with_how_many_there_are(cli, keyed, tmp_path):
    np.save(tmp_path / "q.npy", np.zeros(builds.DIMENSION, np.float32))
    code, _, err = search(cli, "--vector", str(tmp_path / "q.npy"), "--k", "61")
    assert (code, "ask for at most 60" in err) == (2, True)


def test_fewer_rows_are_shown_where_that_is_allowed(cli, keyed):
    few = ["--key", "word=w5", "--where", "id < 3", "--k", "9", "--json"]
    code, _, err = search(cli, *few)
    assert (code, "only 3 other live rows can be answered under the" in err) == (2, True)
    code, out, _ = search(cli, *few, "--allow-fewer")
    assert (code, len(json.loads(out)["answers"])) == (0, 3)
    none = ["--key", "word=w5", "--where", "id > 300"]
    code, _, err = search(cli, *none)
    assert (code, "no other live rows can be answered under the" in err) == (2, True)
    assert "--allow-fewer" not in err
    code, out, _ = search(cli, *none, "--allow-fewer")
    assert (code, "no live row of snapshot" in out, "satisfies 'id > 300'" in out) == (
        0,
        True,
        True,
    )


def test_nothing_that_is_near_is_told_as_it_was_asked_for(cli, keyed, tmp_path):
    snapshot = keyed.refresh().current_snapshot().snapshot_id
    np.save(tmp_path / "q.npy", np.ones(builds.DIMENSION, np.float32))
    of_vector, of_key = ("--vector", str(tmp_path / "q.npy")), ("--key", "word=w5")
    for asked, told in (
        ((*of_vector, "--within", "-1"), "no live row of snapshot {} is nearer than -1"),
        ((*of_key, "--within", "1e-9"), "no other live row of snapshot {} is nearer than 1e-09"),
        (
            (*of_key, "--within", "1e-9", "--where", "id < 9"),
            "no other live row of snapshot {} satisfies 'id < 9' and is nearer than 1e-09",
        ),
        (
            (*of_key, "--where", "id = 5", "--allow-fewer"),
            "no other live row of snapshot {} satisfies 'id = 5' and holds a usable vector",
        ),
        (
            (*of_vector, "--where", "embedding is null", "--allow-fewer"),
            "no live row of snapshot {} with a usable vector satisfies 'embedding is null'",
        ),
    ):
        assert search(cli, *asked)[:2] == (0, told.format(snapshot) + "\n")


def test_rows_outside_the_index_are_told_or_refused(cli, keyed):
    keyed.append(builds.rows([200, 201]))
    ask = ["--key", "word=w5", "--json", "--stale-policy"]
    code, _, err = search(cli, *ask, "warn")
    assert (code, "warning: 2 rows outside the index" in err) == (0, True)
    code, _, err = search(cli, *ask, "fail")
    assert (code, "does not cover 2 rows in 1 data file " in err) == (4, True)


def test_the_way_of_a_search_is_shown(cli, keyed):
    ask = ["--key", "word=w5", "--k", "2", "--where", "id < 30", "--explain"]
    code, out, _ = search(cli, *ask)
    assert (code, "├── version ann-words_index" in out) == (0, True)
    assert "├── condition id < 30: 30 rows allowed" in out
    assert "├── shard 0: allowed rows compared, " in out
    assert " expected once its pages are read\n" in out
    assert "├── expected: the time of one thread" in out or "└── expected: the time of one" in out
    assert "    ├── open the index: " in out
    code, out, _ = search(cli, *ask, "--json")
    told = json.loads(out)["explanation"]
    assert told["condition"]["rows_allowed"] == 30
    names = [stage["name"] for stage in told["stages"]]
    assert names[:3] == ["load the program", "open the index", "read the queries"]
    assert names[-1] == "tell of it"
    spent = [stage["seconds"] for stage in told["stages"]]
    assert told["seconds"] == pytest.approx(sum(spent))
    assert min(spent) >= 0.0
    code, out, _ = search(cli, "--key", "word=w5", "--within", "3", "--explain")
    assert "├── coverage 100.0 %" in out


def test_of_a_table_that_was_emptied_nobody_is_told_to_ask_for_none(cli, keyed, tmp_path):
    keyed.delete("id >= 0")
    np.save(tmp_path / "q.npy", np.zeros(builds.DIMENSION, np.float32))
    code, _, err = search(cli, "--vector", str(tmp_path / "q.npy"), "--k", "1")
    assert (code, "no rows are live" in err, "at most" in err) == (2, True, False)
    assert "--allow-fewer" not in err


def test_rows_are_told_by_their_key_where_no_columns_are_asked_for(cli, keyed, declare, tmp_path):
    _, out, _ = search(cli, "--key", "word=w5", "--k", "2")
    assert "word" in out.splitlines()[1]
    assert "locator" not in out
    _, out, _ = search(cli, "--key", "id=5", "--k", "2")
    assert " id " in out.splitlines()[1]
    np.save(tmp_path / "q.npy", np.ones(builds.DIMENSION, np.float32))
    asked = "--vector", str(tmp_path / "q.npy"), "--k", "1"
    _, out, _ = search(cli, *asked)
    assert "locator" in out, "no declaration tells of a key"
    declare(key="word")
    _, out, _ = search(cli, *asked)
    assert " word " in out.splitlines()[1]
    declare(key="gone")
    _, out, _ = search(cli, *asked)
    assert "locator" in out
    _, out, _ = search(cli, "--key", "word=w5", "--k", "2", "--json")
    assert "word" not in json.loads(out)["answers"][0]


def test_two_rows_with_one_key_are_refused(cli, keyed):
    keyed.append(builds.rows([5]))
    code, _, err = search(cli, "--key", "word=w5")
    assert (code, "more than one row has this key" in err) == (2, True)


def test_every_row_nearer_than_a_distance(cli, keyed):
    code, out, _ = search(cli, "--key", "word=w5", "--within", "3.5", "--columns", "word", "--json")
    found = json.loads(out)
    ids, vectors = builds.live(keyed)
    exact = builds.distances("l2", vectors[ids == 5][0], vectors)
    nearer = ids[np.argsort(exact, kind="stable")][1 : (exact < 3.5).sum()]
    assert code == 0
    assert len(nearer) > 1
    assert [row["word"] for row in found["answers"]] == [f"w{number}" for number in nearer]
    assert [row["rank"] for row in found["answers"]] == list(range(1, len(nearer) + 1))
    code, out, _ = search(cli, "--key", "word=w5", "--within", "0.0001", "--json")
    assert (code, json.loads(out)["answers"]) == (0, [])
    code, _, err = search(cli, "--key", "word=w5", "--within", "nan")
    assert (code, "distance is NaN" in err) == (2, True)


@pytest.mark.parametrize("how", ["--key", "--vector"])
@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ((), (None, None, False)),
        (("--width", "7"), (7, None, False)),
        (("--width", "1", "--probe-partitions", "3"), (1, 3, False)),
        (("--exhaustive",), (None, None, True)),
        (("--width", "1048576", "--probe-partitions", str(10**30)), (1 << 20, 10**30, False)),
    ],
)
def test_searches_are_as_wide_as_they_are_asked_to_be(
    cli, keyed, tmp_path, monkeypatch, how, options, asked
):
    seen, honest = [], Index.search

    def search_and_note(index, *arguments, **given):
        seen.append(tuple(given[name] for name in ("width", "probe_partitions", "exhaustive")))
        return honest(index, *arguments, **given)

    monkeypatch.setattr(Index, "search", search_and_note)
    np.save(tmp_path / "q.npy", np.zeros(builds.DIMENSION, np.float32))
    query = {"--key": "word=w5", "--vector": str(tmp_path / "q.npy")}[how]
    code, _, err = search(cli, how, query, "--k", "60" if how == "--vector" else "59", *options)
    assert (code, seen) == (0, [asked]), err


@pytest.mark.parametrize("option", ["--width", "--probe-partitions"])
def test_a_search_that_compares_every_row_is_not_told_how_hard_to_look(cli, keyed, option):
    code, _, err = search(cli, "--key", "word=w5", "--exhaustive", option, "3")
    assert code == 2
    assert f"give either exhaustive, which compares every row, or {option[2:5]}" in err


def test_fewer_partitions_are_fewer_shards_and_all_of_them_all(cli, keyed):
    probed = [
        json.loads(search(cli, "--key", "word=w5", "--k", "1", *options, "--json")[1])[
            "shards_probed"
        ]
        for options in (("--probe-partitions", "1"), ("--probe-partitions", "1000"))
    ]
    assert probed == [1, 2]


def test_a_damaged_index_file_is_named_and_its_rows_are_compared_in_the_table(cli, keyed):
    path = Path(keyed.metadata.statistics[0].statistics_path.removeprefix("file://"))
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[128] ^= 1  # in section `head` of the first shard's graph, which begins the file
    path.write_bytes(bytes(damaged))
    code, out, _ = search(cli, "--key", "word=w5", "--json")
    assert code == 0  # the cache has what was written
    right = json.loads(out)["answers"]
    shutil.rmtree(settings().cache_dir / "shards")
    code, out, err = search(cli, "--key", "word=w5", "--json")
    assert (code, path.name in err, "shard 0" in err) == (0, True, True)
    assert json.loads(out)["answers"] == right
    assert "puffin-ann doctor test.demo.words --fix" in err
    path.write_bytes(whole[:-1])
    code, _, err = search(cli, "--key", "word=w5")
    assert (code, "no version of it is readable" in err, err.count(path.name)) == (7, True, 1)
    path.unlink()
    code, _, err = search(cli, "--key", "word=w5")
    assert (code, "no version of it is readable" in err) == (7, True)
