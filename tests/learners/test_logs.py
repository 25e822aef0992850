"""Guards that a resumed run continues its growing files from the very byte of the checkpoint."""

import pytest

from learners.logs import append_position, check_position, read_lines, truncate_to
from learners.serialization import CheckpointError


def append(path, text):
    with path.open("a") as file:
        file.write(text)


def test_what_was_written_after_the_checkpoint_is_cut_off(tmp_path):
    path = tmp_path / "metrics.jsonl"
    append(path, '{"a": 1}\n' * 1000)
    position = append_position(path)
    assert position["bytes"] == 9000
    append(path, '{"a": 2}\n{"a": 3')  # a killed run ends in the middle of a line
    truncate_to(path, position)
    assert path.read_text() == '{"a": 1}\n' * 1000
    truncate_to(path, position)  # nothing after it: nothing happens
    assert append_position(path) == position


def test_a_file_that_did_not_exist_yet_is_emptied(tmp_path):
    path = tmp_path / "stream.jsonl"
    position = append_position(path)
    truncate_to(path, position)
    assert position["bytes"] == 0 and not path.exists()
    append(path, "{}\n")
    truncate_to(path, position)
    assert path.read_text() == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [(None, "is missing"), ("one\n", "has 4 bytes"), ("one\nTWO\nthree\n", "is not the file"), ("", "has 0 bytes")],
)
def test_another_file_is_refused_and_left_alone(tmp_path, text, message):
    path = tmp_path / "metrics.jsonl"
    append(path, "one\ntwo\n")
    position = append_position(path)
    path.unlink()
    if text is not None:
        path.write_text(text)
    for use in (check_position, truncate_to):
        with pytest.raises(CheckpointError, match=message):
            use(path, position)
    assert path.read_text() == text if text is not None else not path.exists()


def test_check_position_changes_nothing(tmp_path):
    path = tmp_path / "metrics.jsonl"
    append(path, "one\n")
    position = append_position(path)
    append(path, "two\n")
    check_position(path, position)
    assert path.read_text() == "one\ntwo\n"


def test_reading_tolerates_a_last_line_that_was_cut_off_and_nothing_else(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"a": 1}\n{"a": 2}\n{"a"')
    assert list(read_lines(path)) == [{"a": 1}, {"a": 2}]
    path.write_text('{"a": 1}\n{"a"\n{"a": 3}\n')
    with pytest.raises(ValueError, match=r"line 2 of .*metrics\.jsonl"):
        list(read_lines(path))
    path.write_text("[1]\n")
    with pytest.raises(ValueError, match=r"line 1 .* not a JSON object"):
        list(read_lines(path))
    path.write_text("")
    assert list(read_lines(path)) == []
