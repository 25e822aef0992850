"""Guards where the rows of a task family come from, that none is lost, and that the split depends on ids alone."""

from __future__ import annotations

import gzip
import json
import re
from typing import get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

import llm_envs
from llm_envs.tasks.sources import HubData, Sources, read_rows, split_rows

ROWS = [{"id": "a", "prompt": "one\u2028line"}, {"id": "b", "prompt": "two"}, {"id": "c", "prompt": "three"}]


def sources(**options):
    return Sources(**{"family": "sums", "builtin": lambda: ROWS[:1], "fields": ["id", "prompt"], **options})


def saved(folder, name, text):
    file = folder / name
    raw = isinstance(text, bytes)
    data = text if raw else text.encode()
    file.write_bytes(gzip.compress(data) if name.endswith(".gz") and not raw else data)
    return file


LINES = "\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS) + "\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [("r.json", json.dumps(ROWS)), ("r.JSONL", LINES), ("r.json.gz", json.dumps(ROWS)), ("r.v2.jsonl.gz", LINES)],
)
def test_json_files(tmp_path, name, text):
    file = saved(tmp_path, name, text)
    assert read_rows(file) == ROWS
    assert sources().rows("path", str(file)) == ROWS


def test_tables_and_saved_data_sets(tmp_path):
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_list(ROWS)
    data.to_csv(tmp_path / "r.csv")
    data.to_parquet(tmp_path / "r.parquet")
    data.save_to_disk(tmp_path / "saved")
    for name in ("r.csv", "r.parquet", "saved"):
        assert read_rows(tmp_path / name) == ROWS
    datasets.DatasetDict(train=data).save_to_disk(tmp_path / "splits")
    with pytest.raises(ValueError, match="holds the splits train"):
        read_rows(tmp_path / "splits")


def test_hub_data_is_loaded_by_its_name(tmp_path):
    """A local folder stands for the hub: `load_dataset` takes either."""
    datasets = pytest.importorskip("datasets")
    (tmp_path / "data").mkdir()
    datasets.Dataset.from_list(ROWS).to_json(tmp_path / "data" / "train.jsonl")
    assert sources(hub=HubData(str(tmp_path / "data"))).rows("hub") == ROWS
    # Another data set is read whole: the split of the family's own, and its first rows only, are nobody else's.
    assert sources(hub=HubData("nobody/nothing", "config", "test[:1]")).rows("hub", str(tmp_path / "data")) == ROWS
    assert sources().rows("hub", f"{tmp_path / 'data'}:train[1:]") == ROWS[1:]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("r.json", "[{]", r"r\.json: Expecting"),
        ("r.json", "{}", "must hold a list of rows, got dict"),
        ("r.jsonl", '{"id": 1}\n{"id"\n', r"r\.jsonl, line 2"),
        ("r.jsonl.gz", b"[]", r"r\.jsonl\.gz: Not a gzipped file"),
        ("r.json", b"\xff", r"r\.json: 'utf-8' codec"),
        ("r.txt", "x", r"come from \.json, .* got .*r\.txt"),
        ("rows", "x", "come from"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, name, text, message):
    with pytest.raises(ValueError, match=message):
        read_rows(saved(tmp_path, name, text))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file or folder of rows at .*nowhere"):
        read_rows(tmp_path / "nowhere.json")


@pytest.mark.parametrize(
    ("source", "path", "message"),
    [
        ("cloud", None, "sums: source must be one of builtin, path, hub, got 'cloud'"),
        ("builtin", "x.json", "path='x.json' goes with source='path'"),
        ("path", None, "source='path' needs path"),
        ("package", None, "sums: source must be one of builtin, path, hub, got 'package'"),
        ("hub", None, "needs path, the name of a data set"),
    ],
)
def test_sources_that_do_not_fit(source, path, message):
    with pytest.raises(ValueError, match=message):
        sources().rows(source, path)


def test_a_package_is_a_choice_where_there_is_one():
    assert sources().choices == ("builtin", "path", "hub")
    assert sources(package=lambda: ROWS).choices == ("builtin", "package", "path", "hub")
    assert sources(package=lambda: ROWS).rows("package") == ROWS


@pytest.mark.parametrize("id", [id for id in llm_envs.list_envs() if "source" in llm_envs.spec(id).options()])
def test_families_offer_the_sources_that_they_have(id):
    """What `llm-marl envs` lists is what the task takes; anything else is refused before a row is read."""
    offered = get_args(get_type_hints(llm_envs.spec(id).load())["source"])
    with pytest.raises(ValueError, match=re.escape(f"{id}: source must be one of {', '.join(offered)}, got 'cloud'")):
        llm_envs.make(id, source="cloud")
    if "package" not in offered:
        with pytest.raises(ValueError, match="got 'package'"):
            llm_envs.make(id, source="package")


def test_rows_are_converted_and_checked():
    def convert(row):
        return {**row, "prompt": row["text"].strip()}

    package = [{"id": 1, "text": " x "}]
    assert sources(package=lambda: package, convert=convert).rows("package") == [{"id": 1, "text": " x ", "prompt": "x"}]
    assert sources(convert=convert).rows("builtin") == ROWS[:1]
    with pytest.raises(ValueError, match="sums, source 'package', row 1: KeyError: 'text'; it has the fields id"):
        sources(package=lambda: [*package, {"id": 2}], convert=convert).rows("package")
    with pytest.raises(ValueError, match="row 0 has no 'prompt'; it has the fields id, text"):
        sources(package=lambda: package).rows("package")
    with pytest.raises(ValueError, match="row 0: expected a mapping, got list"):
        sources(package=lambda: [[1]]).rows("package")
    with pytest.raises(ValueError, match="no rows"):
        sources(package=list).rows("package")


def test_split_by_named_ids():
    assert split_rows(ROWS, "id", eval_ids=["c"]) == (ROWS[:2], ROWS[2:])
    with pytest.raises(ValueError, match="eval_ids names 'd', which no row has as its id"):
        split_rows(ROWS, "id", eval_ids=["c", "d"])
    with pytest.raises(ValueError, match="all 3 rows would be kept"):
        split_rows(ROWS, "id", eval_ids=["a", "b", "c"])
    with pytest.raises(ValueError, match="id='a' stands in several"):
        split_rows([*ROWS, {"id": "a"}], "id")
    for share in (1.0, -0.1, "0.2", True):
        with pytest.raises(ValueError, match="eval_share must be"):
            split_rows(ROWS, "id", eval_share=share)
    with pytest.raises(ValueError, match="give eval_ids or eval_share, not both"):
        split_rows(ROWS, "id", eval_ids=["a"], eval_share=0.5)
    with pytest.raises(ValueError, match="eval_ids must be a list of ids, got 'a'"):
        split_rows(ROWS, "id", eval_ids="a")
    assert len(split_rows([{"id": n} for n in range(8)], "id")[1]) == 2  # a quarter
    assert split_rows(ROWS, "id", eval_share=0.0) == (ROWS, None)


@given(count=st.integers(2, 40), share=st.floats(0.01, 0.49), order=st.randoms(use_true_random=False))
def test_split_by_share(count, share, order):
    """Every row is in one part, and in the same whatever the order; the order of rows is kept."""
    rows = [{"id": number} for number in range(count)]
    train, held = split_rows(rows, "id", eval_share=share)
    assert len(held) == max(1, round(share * count))
    assert sorted([*train, *held], key=lambda row: row["id"]) == rows
    assert train == sorted(train, key=lambda row: row["id"])
    shuffled = list(rows)
    order.shuffle(shuffled)
    again = split_rows(shuffled, "id", eval_share=share)
    assert {row["id"] for row in again[1]} == {row["id"] for row in held}
