"""Guards that a run resumes only with options that fit, is told every one that does not, and that secrets stay out of files."""

import math

import pytest

from learners.compatibility import check_compatible, fingerprint, redact


def test_equal_options_fit_whatever_their_order_and_sequence_type():
    saved = {"a": 1, "devices": ("cpu", "cuda:0"), "nested": {"x": 1.0, "y": None}, "nan": math.nan}
    current = {"nan": math.nan, "nested": {"y": None, "x": 1}, "devices": ["cpu", "cuda:0"], "a": 1}
    check_compatible(saved, current)


def test_every_difference_is_listed_with_both_values():
    saved = {"discount": 0.9, "optimizer": {"beta": 0.9, "eps": 1e-8}, "gone": 1, "flag": True, "same": 2, "devices": ["cpu"]}
    current = {
        "discount": 0.95,
        "optimizer": {"beta": 0.8, "eps": 1e-8},
        "new": "x",
        "flag": 1,
        "same": 2,
        "devices": ["cpu", "cpu"],
    }
    with pytest.raises(ValueError, match="does not fit") as caught:
        check_compatible(saved, current)
    assert str(caught.value).splitlines()[1:] == [
        "  discount: 0.9 in the checkpoint, 0.95 now",
        "  optimizer.beta: 0.9 in the checkpoint, 0.8 now",
        "  gone: 1 in the checkpoint, absent now",
        "  flag: True in the checkpoint, 1 now",
        "  devices: ['cpu'] in the checkpoint, ['cpu', 'cpu'] now",
        "  new: absent in the checkpoint, 'x' now",
    ]


def test_what_may_change_may_change():
    saved = {"lr": 1e-3, "eval": {"interval": 4, "samples": 2}, "evaluation": 1}
    current = {"lr": 2e-3, "eval": {"interval": 8, "samples": 3}, "evaluation": 2}
    with pytest.raises(ValueError) as caught:
        check_compatible(saved, current, {"lr", "eval.interval"})
    assert "eval.samples" in str(caught.value) and "evaluation" in str(caught.value)
    assert "lr" not in str(caught.value) and "interval" not in str(caught.value)
    check_compatible(saved, current, {"lr", "eval", "evaluation"})


def test_a_rotated_key_does_not_matter_and_is_not_shown():
    check_compatible({"comparator_api_key": "old", "n": 1}, {"comparator_api_key": "new", "n": 1})
    with pytest.raises(ValueError) as caught:
        check_compatible({"api": None}, {"api": {"api_key": "sk-new"}})
    assert "sk-new" not in str(caught.value)


def test_redact_masks_secrets_only_and_leaves_its_argument():
    config = {
        "comparator_api_key": "sk-1",
        "API-Key": "sk-2",
        "hf_token": "hf_3",
        "password": "4",
        "unset_api_key": None,
        "comparator_headers": {"Authorization": "Bearer 5", "X-Team": "6"},
        "nested": [{"x_api_key": "7"}, ("a", {"client_secret": "8"})],
        "comparator_api_key_env": "OPENAI_API_KEY",
        "max_new_tokens": 32,
        "pad_token": "<pad>",
        "tokenizer": "tiny",
        "secretary": "kept",
    }
    before = repr(config)
    mask = "<redacted>"
    assert redact(config) == {
        "comparator_api_key": mask,
        "API-Key": mask,
        "hf_token": mask,
        "password": mask,
        "unset_api_key": None,
        "comparator_headers": {"Authorization": mask, "X-Team": mask},
        "nested": [{"x_api_key": mask}, ("a", {"client_secret": mask})],
        "comparator_api_key_env": "OPENAI_API_KEY",
        "max_new_tokens": 32,
        "pad_token": "<pad>",
        "tokenizer": "tiny",
        "secretary": "kept",
    }
    assert repr(config) == before


def test_fingerprints_depend_on_values_and_not_on_order():
    fields = {"rows": 3, "columns": {"b": ["x"], "a": 0.1}}
    assert fingerprint(fields) == fingerprint({"columns": {"a": 0.1, "b": ["x"]}, "rows": 3})
    others = [{**fields, "rows": 4}, {**fields, "rows": "3"}, {**fields, "rows": 3.0}, {"rows": 3}]
    assert len({fingerprint(fields), *map(fingerprint, others)}) == 5


def test_fingerprints_of_what_is_not_plain_are_refused():
    with pytest.raises(TypeError, match="/f"):
        fingerprint({"f": len})
