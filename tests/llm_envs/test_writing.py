"""Guards the writing environments: what writers read, turns and feedback, one agent for both texts, options, rows, the page."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path

import pytest
from writing_pairs import FORMS, TASKS, all_rows, terms_of

from llm_envs.env import TaskEnv
from llm_envs.registry import make, spec
from llm_envs.tasks.writing.levels import LEVELS
from llm_envs.tasks.writing.measures import words
from llm_envs.tasks.writing.parts import SEPARATOR
from llm_envs.testing import audit_rewards, check_task

PAGE = (Path(__file__).parents[2] / "docs" / "tasks" / "writing.md").read_text(encoding="utf-8")
SCORED = {"grounding", *LEVELS}


def play(task, *joints):
    """Rewards of the first agent turn by turn, and the last state, on the first row."""
    env = TaskEnv(task)
    state, rewards = env.initial(task.items[0], (0, 0), 0), []
    for texts in joints:
        (transition,) = env.branch(state, [dict(zip(env.possible_agents, texts, strict=True))])
        assert len(set(transition.rewards.values())) == 1  # the team shares it
        rewards.append(transition.rewards[env.possible_agents[0]])
        state = transition.state
    return rewards, state


@pytest.fixture(params=TASKS)
def name(request):
    return request.param


# ---- what they read ----


def test_each_writer_reads_the_source_and_its_own_job(name):
    task = TASKS[name]()
    first, second = FORMS[name].roles
    assert task.agent_ids == (f"{first}_0", f"{second}_0")
    for row in all_rows(name):
        prompts = TaskEnv(task).initial(row, (0, 0), 0).observations
        assert all(prompt.count(row[FORMS[name].field]) == 1 for prompt in prompts.values())
        assert len(set(prompts.values())) == 2
        assert not any(row[role] in prompt for role in FORMS[name].roles for prompt in prompts.values())


def test_the_prompts_say_who_writes_what():
    prompts = TaskEnv(TASKS["tldr-v0"]()).initial({"id": "x", "prompt": "It rained."}, (0, 0), 0).observations
    assert prompts["summary_0"].startswith("Read this post.\n\nIt rained.\n\nSummarise the post in one or two sentences")
    assert "two to three times as long" in prompts["detail_0"] and "two to three times" not in prompts["summary_0"]
    prompts = TaskEnv(TASKS["arxiv-v0"]()).initial({"id": "x", "abstract_text": "We measure rain."}, (0, 0), 0).observations
    assert "Write the first one, which gives the background" in prompts["background_0"]
    assert "Write the second one, which gives what was done" in prompts["method_0"]


# ---- turns ----


def test_turns_are_weighed_and_a_best_answer_ends_the_episode(name):
    """H = 2: the poor turn scores s and counts s/2; the best one counts ½; at once it counts 1."""
    task = TASKS[name](num_turns=2)
    best = task.reference(task.items[0])
    poor = (best[0], best[0])
    once = terms_of(TASKS[name](), task.items[0], poor)
    twice = terms_of(task, task.items[0], poor)
    assert once["grounding"] > 0
    for term, value in once.items():
        assert twice[term] == pytest.approx(value / 2 if term in SCORED else value), term
    (score,), _ = play(TASKS[name](), poor)
    assert 0.0 < score < 1.0
    rewards, state = play(task, poor, best)
    assert rewards == [pytest.approx(score / 2), 0.5] and state.terminated
    rewards, state = play(task, best)
    assert rewards == [1.0] and state.terminated
    rewards, state = play(task, poor, poor)
    assert sum(rewards) == pytest.approx(score) and state.terminated


def test_later_prompts(name):
    task = TASKS[name](num_turns=2, feedback="plain")
    start = TaskEnv(task).initial(task.items[0], (0, 0), 0).observations
    _, state = play(task, ("one", "two"))
    for agent, text in zip(task.agent_ids, ("one", "two"), strict=True):
        assert state.observations[agent] == f"{start[agent]}\n\nYour last answer was:\n{text}\n\nWrite a better answer."
    bare = TASKS[name](num_turns=2, feedback="plain", original_prompt=False, previous_response=False)
    _, state = play(bare, ("one", "two"))
    assert set(state.observations.values()) == {"Write a better answer."}


def test_level_passed_says_which_levels_are_full():
    task = TASKS["tldr-v0"](num_turns=2, feedback="level_passed", original_prompt=False, previous_response=False)
    first, _ = task.reference(task.items[0])
    _, state = play(task, (first, " ".join(first.split()[:4] * 8)))
    said = {"grounding": "low", "length": "full", "ratio": "low", "vocabulary": "low", "style": "not full"}
    lines = ["Levels:", *(f"- {level}: {reached}" for level, reached in said.items()), "", "Write a better answer."]
    assert state.observations["summary_0"] == state.observations["detail_0"] == "\n".join(lines)


def test_level_feedback_says_what_was_measured():
    task = TASKS["arxiv-v0"](num_turns=2, original_prompt=False, previous_response=False)
    best = task.reference(task.items[0])
    _, state = play(task, (best[0], "We did it."))
    found = terms_of(task, task.items[0], (best[0], "We did it."))
    lines = state.observations["method_0"].splitlines()
    assert lines[0] == "Levels:" and lines[1].startswith("- grounding 0.00 of 1: together the texts say ")
    assert lines[2].startswith("    background: recall 1.00, precision ")
    shown = "recall 0.00, precision 0.00, copied 0.00, passages 0.00, aligned 0.00, linked 1.00, followed 0.00, repeated 0.00"
    assert lines[3].startswith(f"    method: {shown}, ")
    assert lines[4] == f"- length 0.00 of 1: words: background {found['words_background']:.0f} and method 3"
    assert (
        lines[5]
        == f"- ratio 0.00 of 1: the method text has {found['length_ratio']:.2f} times the characters of the background text"
    )
    assert lines[7].startswith("- style ") and lines[7].endswith(f"overlap of both texts {found['jaccard']:.2f}")
    reference = TASKS["arxiv-v0"](num_turns=2, scoring="reference", original_prompt=False, previous_response=False)
    _, state = play(reference, (best[0], best[1]))
    assert "- length 0.00 of 0.5: words: " in state.observations["method_0"]


# ---- one agent ----


def test_one_agent_writes_both_texts_for_the_same_reward(name):
    pair, single = TASKS[name](), TASKS[name](agents=1)
    assert single.agent_ids == ("writer_0",)
    for row in all_rows(name)[:4]:
        best = pair.reference(row)
        (text,) = single.reference(row)
        assert text == f"{best[0]}\n{SEPARATOR}\n{best[1]}"
        assert terms_of(single, row, (text,)) == terms_of(pair, row, best)
        assert SEPARATOR in TaskEnv(single).initial(row, (0, 0), 0).observations["writer_0"]
    assert play(single, (" ".join(pair.reference(pair.items[0])),))[0] == [0.0]  # the second part is not found


def test_names_of_agents(name):
    assert TASKS[name](agents=["a_0", "b_0"]).agent_ids == ("a_0", "b_0")
    assert TASKS[name](agents=["solo_3"]).agent_ids == ("solo_3",)
    with pytest.raises(ValueError, match=rf"{name} has two texts to write, so 2 agents or 1 that writes both, got 3"):
        TASKS[name](agents=3)


# ---- options and rows ----


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scoring": "ours"}, "scoring must be one of grounded, reference, got 'ours'"),
        ({"feedback": "passed"}, "feedback must be one of plain, level_passed, level_feedback, got 'passed'"),
        ({"original_prompt": 1}, "original_prompt must be True or False, got 1"),
        ({"previous_response": None}, "previous_response must be True or False, got None"),
        ({"num_turns": 0}, "num_turns must be a whole number of at least 1, got 0"),
        ({"eval_ids": ["x"], "eval_share": 0.5}, "give eval_ids or eval_share, not both"),
        ({"eval_ids": ["nobody"]}, "eval_ids names 'nobody'"),
        ({"source": "package"}, "source must be one of builtin, path, hub, got 'package'"),
        ({"source": "path"}, "needs path"),
        ({"path": "rows.jsonl"}, "goes with source='path'"),
    ],
)
def test_bad_options(name, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make(name, **options)


def test_bundled_rows(name):
    """Lengths as promised, ids of their own, a part kept for evaluation that does not depend on the order."""
    task, form = TASKS[name](), FORMS[name]
    low, high, count, held = {"tldr-v0": (80, 160, 14, 4), "arxiv-v0": (100, 200, 12, 3)}[name]
    rows = all_rows(name)
    assert (len(rows), len(task.eval_items)) == (count, held)
    assert len({row["id"] for row in rows}) == len({row[form.field] for row in rows}) == count
    assert all(low <= len(row[form.field].split()) <= high for row in rows)
    assert all(set(row) == {"id", form.field, *form.roles} for row in rows)
    assert TASKS[name](eval_share=0.0).eval_items is None
    one = rows[3]["id"]
    assert [row["id"] for row in TASKS[name](eval_ids=[one]).eval_items] == [one]


def written(folder, rows):
    file = folder / "rows.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    return str(file)


def test_rows_of_a_file(name, tmp_path):
    """Without ids they get one of their text, so the split does not depend on their order; a text that is there twice stays."""
    field = FORMS[name].field
    texts = [f"Storm number {number} broke {number} old trees." for number in (0, 1, 2, 2)]
    rows = [{field: text, "token_count": 7} for text in texts]
    task = TASKS[name](source="path", path=written(tmp_path, rows))
    ids = [row["id"] for row in (*task.items, *task.eval_items)]
    assert len(set(ids)) == 4 and sum(one.endswith("-2") for one in ids) == 1
    again = TASKS[name](source="path", path=written(tmp_path, rows[::-1]))
    assert {row["id"] for row in again.eval_items} == {row["id"] for row in task.eval_items}
    assert task.reference is None  # nobody knows the best answer to a foreign row
    with pytest.raises(ValueError, match=rf"row 0 has no '{field}'; it has the fields text"):
        TASKS[name](source="path", path=written(tmp_path, [{"text": "x"}]))
    with pytest.raises(ValueError, match=rf"'{field}' must be a text with words to write about, got 'and so on' in row 'b'"):
        TASKS[name](source="path", path=written(tmp_path, [{"id": "a", field: "Rain."}, {"id": "b", field: "and so on"}]))


def test_article_ids_are_ids(tmp_path):
    rows = [{"article_id": one, "abstract_text": f"Storm {one} broke."} for one in ("1501.1", "1501.2")]
    task = TASKS["arxiv-v0"](source="path", path=written(tmp_path, rows), eval_ids=["1501.2"])
    assert [row["id"] for row in task.eval_items] == ["1501.2"]


def test_rows_of_a_data_set(tmp_path):
    """A local folder stands for the hub: all rows of its training part are taken, or those that are named."""
    name = "tldr-v0"
    datasets = pytest.importorskip("datasets")
    (tmp_path / "data").mkdir()
    rows = [{FORMS[name].field: f"Storm number {number} broke."} for number in range(1002)]
    datasets.Dataset.from_list(rows).to_json(tmp_path / "data" / "train.jsonl")
    for path, count in ((tmp_path / "data", 1002), (f"{tmp_path / 'data'}:train[:1000]", 1000)):
        task = TASKS[name](source="hub", path=str(path))
        assert len(task.items) + len(task.eval_items) == count


# ---- contracts ----


@pytest.mark.parametrize("options", [{"num_turns": 2}, {"agents": 1}, {"scoring": "reference"}], ids=str)
def test_tasks_keep_their_contract(name, options):
    task = TASKS[name](**options)
    assert len(check_task(task, scored_rows=1)) == 3
    env = pickle.loads(pickle.dumps(TaskEnv(task)))
    assert env.reset(seed=0)[0].keys() == set(task.agent_ids)


def test_scoring_decides_the_terms_that_count(name):
    factors = {scoring: TASKS[name](scoring=scoring).reward.factors for scoring in ("grounded", "reference")}
    assert factors["grounded"].keys() == factors["reference"].keys()
    assert {term for term, factor in factors["grounded"].items() if factor} == SCORED
    assert {term for term, factor in factors["reference"].items() if factor} == set(LEVELS)
    assert "solved" not in factors["grounded"]


# ---- the page ----


def test_options_on_the_page_are_there_with_their_defaults(name):
    said = dict(re.findall(r"^\| `(\w+)` \| .* \| (.+?) \|$", PAGE.split("## Options")[1].split("\n## ")[0], re.MULTILINE))
    options = spec(name).options()
    assert said.keys() == options.keys()
    assert {option: said[option] for option in said} == {
        option: f"`{value!r}`".replace("'", '"') if value is not None else "`None`" for option, value in options.items()
    }


def test_windows_on_the_page_are_those_of_the_tasks():
    """`a, b, c, d` for a window from a to d that is best from b to c; the reference's too."""
    ours = cells_of("### The levels")
    for name in TASKS:
        levels = FORMS[name].levels
        assert ours[name]["length"] == [*limits(levels.length[0]), *limits(levels.length[1])]
        assert ours[name]["ratio"] == limits(levels.ratio) and ours[name]["vocabulary"] == limits(levels.vocabulary)
        assert ours[name]["style"] == [*limits(levels.overlap), 0, levels.enough, 12, 12]
    theirs = cells_of("## The reference's scoring")
    for name in TASKS:
        gated = FORMS[name].gated
        assert theirs[name]["ratio"] == limits(gated.ratio) and theirs[name]["vocabulary"] == limits(gated.vocabulary)
        assert f"min(jaccard, {gated.overlap_cap})/{gated.overlap_cap}" in PAGE
    assert (theirs["tldr-v0"]["length"], theirs["arxiv-v0"]["length"]) == ([8, 256], [128, 256])


def cells_of(heading):
    """Task → level → the numbers of its cells in the table under a heading, those of several rows one after the other."""
    table = re.split(r"\n##+ ", PAGE.split(f"\n{heading}\n")[1])[0]
    found = {name: {} for name in TASKS}
    for line in re.findall(r"^\| `.+ \|$", table, re.MULTILINE):
        level, *_, tldr, arxiv = line.strip("| ").split(" | ")
        for name, cell in zip(TASKS, (tldr, arxiv), strict=True):
            numbers = [float(one.replace("∞", "inf")) for one in re.findall(r"\d+(?:\.\d+)?|∞", cell.replace("1 · ", ""))]
            found[name].setdefault(level.split("`")[1], []).extend(numbers)
    return found


def limits(window):
    return [window.low, window.best_from, window.best_to, window.high]


def test_the_audit_table_is_true(name):
    table = PAGE.split("## What careless teams earn")[1]
    column = list(TASKS).index(name)
    said = {}
    for teams, *values in re.findall(r"^\| (.+?) \| ([\d.]+) \| ([\d.]+) \|$", table, re.MULTILINE):
        said |= dict.fromkeys(teams.split(", "), float(values[column]))
    audit = audit_rewards(make(name))
    assert said == {entry.team: round(entry.mean, 2) for entry in audit.teams}
    assert not audit.warnings and audit["reference"].min == 1.0


def test_no_bundled_text_is_anybody_elses_prompt():
    """Rows are different enough to tell teams that read from teams that do not."""
    for name in TASKS:
        contents = [set(words(row[FORMS[name].field])) for row in all_rows(name)]
        overlaps = [len(a & b) / len(a | b) for i, a in enumerate(contents) for b in contents[:i]]
        assert max(overlaps) < 0.35
