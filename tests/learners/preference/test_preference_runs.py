"""Guards whole preference runs: what is trained, counted, logged and written, with which rewards, and what is saved."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from rounds import (
    AGENTS,
    ITEMS,
    TRAINERS,
    flat,
    kinds,
    logged,
    make_trainer,
    recorded,
    reward,
    round_files,
    same,
    team,
    tiny,
    values_of,
    weights,
)
from transformers import AutoModelForCausalLM

from learners.learner import Learner
from learners.phases import RolloutPhase, Sampler
from learners.preference.collecting import CollectPhase
from learners.preference.fitting import FitPhase, Meter
from learners.preference.replay import read_round
from learners.reinforce import MAGRPO, MAGRPOConfig
from learners.tracking import PASS_GROUP, LoggingGate
from llm_envs.env import TaskEnv
from llm_envs.rewards import set_reward_range
from llm_envs.rollouts import Numbering
from llm_envs.task import Task
from llm_envs.types import Metrics
from llm_envs.wrappers import UnparsableCompletionError

KINDS = list(TRAINERS)
ROUND = {
    "iter/current_iteration",
    "iter/current_preference_pairs",
    "iter/total_preference_pairs",
    "iter/train_preference_pairs",
    "iter/dropped_comparisons",
}
PAIRS = {"preference/loss", "preference/margin", "preference/accuracy", "preference/epoch", "preference/agent_0/grad_norm"}
MODEL = {"reward_model/loss", "reward_model/accuracy", "reward_model/margin", "reward_model/epoch", "reward_model/grad_norm"}
HELD_OUT = {"reward_model/holdout_loss", "reward_model/holdout_accuracy"}
RL = {"agent_0/loss", "agent_1/grad_norm", "turn_1/expected_return"}
NAMES = {
    "madpo": ROUND | PAIRS,
    "marlhf": ROUND | MODEL | HELD_OUT | RL,
    "madpo-iter": ROUND | PAIRS | {"comparator/expected_return"},
    "marlhf-iter": ROUND | MODEL | HELD_OUT | RL | {"comparator/expected_return"},
}


def names(trainer: Any) -> set[str]:
    return {name for line in logged(trainer) for name in line}


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_trains_logs_and_counts_every_joint_response(kind, tmp_path):
    """C = 3, of the comparator too where there is one, then 2 epochs of K = 2 in MARLHF."""
    seen = []

    def counted(first: Sequence[str], second: Sequence[str]) -> list[float]:
        seen.extend(zip(first, second, strict=True))
        return reward(first, second)

    trainer = make_trainer(kind, tmp_path, reward=counted, num_train_epochs=2, parts={"record": True})
    before = weights(trainer)
    trainer.train()
    assert not same(before, weights(trainer))
    rounds, sides = (2, 2) if kind.endswith("iter") else (1, 1)
    expected = rounds * len(ITEMS) * (3 * sides + (2 * 2 if kind.startswith("marlhf") else 0))
    assert trainer.numbering.env_step == len(seen) == expected
    assert [line["env_step"] for line in recorded(trainer)] == list(range(1, expected + 1))
    assert names(trainer) >= NAMES[kind] | {"turn_1/reward_mean"}
    steps = [line["env_step"] for line in logged(trainer)]
    assert steps == sorted(steps)
    assert values_of(trainer, "iter/current_iteration") == list(range(1, rounds + 1))


@pytest.mark.parametrize("kind", kinds("madpo-iter"))
def test_evaluation_is_on_the_reward_of_the_task(kind, tmp_path):
    trainer = make_trainer(kind, tmp_path, eval_interval=2)
    trainer.train()
    found = trainer.evaluate(3)["eval/turn_1/reward_mean"]
    texts = [[step.completions[agent].text for agent in AGENTS] for step in trainer.last_evaluation]
    assert found == pytest.approx(sum(reward(*zip(*texts, strict=True))) / 3)
    assert len(values_of(trainer, "eval/turn_1/reward_mean")) >= 2


@pytest.mark.parametrize("kind", kinds("marlhf", "madpo-iter"))
def test_without_pairs_a_run_warns_trains_nothing_and_ends(kind, tmp_path):
    trainer = make_trainer(kind, tmp_path, reward=flat)
    before = weights(trainer)
    with pytest.warns(UserWarning, match=r"no two responses to an item differ in reward.*preference_num_candidates=3"):
        trainer.train(checkpoint_dir=tmp_path / "checkpoints", evaluate_at_end=True)
    assert same(before, weights(trainer))
    rounds = 2 if kind.endswith("iter") else 1
    assert trainer.numbering.env_step == rounds * len(ITEMS) * (6 if rounds == 2 else 3)
    assert values_of(trainer, "iter/train_preference_pairs") == [0] * rounds
    assert not names(trainer) & (PAIRS | MODEL | {"agent_0/loss"})
    finished = make_trainer(kind, tmp_path, reward=flat)
    finished.train("latest", checkpoint_dir=tmp_path / "checkpoints")
    assert finished.numbering == trainer.numbering


@pytest.mark.parametrize("kind", kinds("madpo-iter"))
def test_it_does_not_matter_how_many_responses_are_drawn_together(kind, tmp_path):
    """But for the rounding of sums; logged once all are there."""
    runs = [
        make_trainer(kind, tmp_path / str(size), collection_batch_size=size, logging_steps=1000, parts={"record": True})
        for size in (1, 1000)
    ]
    sizes = [phase.chunk_size() for run in runs for phase in run.phases[:1]]
    assert sizes == [1, 1000 // (6 if kind.endswith("iter") else 3)]
    for run in runs:
        run.train()
    texts = [[{a: c["token_ids"] for a, c in line["completions"].items()} for line in recorded(run)[:12]] for run in runs]
    assert texts[0] == texts[1]
    for one, other in zip(*map(weights, runs), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", kinds("marlhf"))
def test_agents_at_once_are_agents_one_by_one(kind, tmp_path):
    apart, together = (
        make_trainer(kind, tmp_path / mode, parallel_training=mode, agent_devices=["cpu", "cpu"]) for mode in ("none", "mp")
    )
    for run in (apart, together):
        run.train()
    assert same(weights(apart), weights(together))
    assert logged(apart) == logged(together)


@pytest.mark.parametrize("kind", kinds("marlhf", "madpo-iter"))
def test_several_turns(kind, tmp_path):
    """A joint response is a whole episode: chains of two turns, one reward for both."""
    trainer = make_trainer(kind, tmp_path, num_turns=2, discount=0.5, parts={"record": True})
    before = weights(trainer)
    trainer.train()
    assert not same(before, weights(trainer))
    candidates = 6 if kind.endswith("iter") else 3
    lines = recorded(trainer)[: 2 * candidates]
    assert [line["turn"] for line in lines] == [1] * candidates + [2] * candidates
    if candidates == 6:
        first, second = ([line["rewards"]["agent_0"] for line in half] for half in (lines[:6], lines[6:]))
        returns = [one + 0.5 * two for one, two in zip(first, second, strict=True)]
        ranked = sorted(zip(returns[:3], returns[3:], strict=True), key=lambda sides: -sides[1])[:2]
        pairs = read_round(tmp_path / "preference_replay" / "iteration_0001.json")[:2]
        found = [value for pair in pairs for value in (pair.target_raw_reward, pair.comparator_raw_reward)]
        assert found == pytest.approx([value for sides in ranked for value in sides])
        assert all(len(pair.winner.prompts) == 2 for pair in pairs)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("madpo", {}),
        ("marlhf", {}),
        ("madpo-iter", {"comparator_policy": "history"}),
        ("marlhf-iter", {"comparator_generation_mode": "centralized"}),
    ],
)
def test_a_centralised_team(kind, options, tmp_path):
    """One agent writes all roles' texts; the reward gets them in parts. A comparator does as it does, whatever its mode."""
    trainer = make_trainer(
        kind,
        tmp_path,
        reward=lambda first, second: [0.0 if a == b == "" else 1.0 for a, b in zip(first, second, strict=True)],
        policies={"team_0": tiny()},
        collaboration_mode="centralized",
        parts={"team_adapter": Letters()},
        **options,
    )
    before = weights(trainer)
    trainer.train()
    assert not same(before, weights(trainer))
    assert list(trainer.learner.policies) == ["team_0"]
    trainer.save_model(tmp_path / "saved")
    assert (tmp_path / "saved" / "agent_0" / "config.json").is_file()


class Letters:
    """Gives every role the whole text, but for those that cannot be split."""

    def build_prompt(self, item: Any, agent_prompts: Sequence[str]) -> str:
        return " & ".join(agent_prompts)

    def parse_completion(self, text: str, item: Any, n: int) -> list[str]:
        if sum(text.encode()) % 2 == 0:
            raise UnparsableCompletionError("even")
        return [text] * n


# ---- MARLHF ----


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        ("magrpo", {}),
        ("marloo", {"rl_options": {"advantage_normalization": False}}),
        ("maac", {"critic_type": "q", "critic_learning_rate": 1e-3}),
        ("iac", {"rollout_buffer_size": 3}),
        ("iac", {"use_separate_critic": False}),
    ],
)
def test_marlhf_trains_with_any_policy_gradient_learner(algorithm, options, tmp_path):
    """Its rewards are the reward model's scores, beside those of the task."""
    critics = algorithm in ("maac", "iac") and options.get("use_separate_critic", True)
    parts: dict[str, Any] = {"record": True}
    if critics:
        parts |= {"critic_model": tiny(5).model}
    trainer = make_trainer("marlhf", tmp_path, rl_algorithm=algorithm, parts=parts, **options)
    before = weights(trainer)
    trainer.train()
    assert not same(before, weights(trainer))
    collecting, training = recorded(trainer)[:12], recorded(trainer)[12:]
    assert len(training) == len(ITEMS) * 2
    for line in [collecting[0], training[0], training[-1]]:
        texts = [[line["completions"][agent]["text"]] for agent in AGENTS]
        info = line["infos"]["agent_0"]
        (task,) = reward(*texts)
        assert info.get("reward/task", info["raw_reward"]) == pytest.approx(task)
        assert (line["rewards"]["agent_0"] == pytest.approx(task)) == (line in collecting)
    # The model is fitted before the learner begins, and stays.
    last = training[-1]
    scored = trainer.learner.reward_model([last["prompts"]], [{agent: last["completions"][agent]["text"] for agent in AGENTS}])
    assert last["rewards"]["agent_1"] == pytest.approx(scored[0], abs=1e-4)


def test_what_a_marlhf_run_saves_is_loaded_again(tmp_path):
    """Agents, critics and the reward model, whose scores are the same."""
    trainer = make_trainer("marlhf", tmp_path, rl_algorithm="iac", parts={"critic_model": tiny(5).model})
    trainer.train()
    saved = tmp_path / "saved"
    trainer.save_model(saved)
    assert {path.name for path in saved.iterdir()} == {"agent_0", "agent_1", "reward_model"}
    assert (saved / "agent_1" / "critic" / "config.json").is_file()
    for index, policy in enumerate(trainer.learner.policies.values()):
        model = AutoModelForCausalLM.from_pretrained(saved / f"agent_{index}")
        assert same(list(model.parameters()), list(policy.model.parameters()))
    critics = [str(saved / agent / "critic") for agent in AGENTS]
    options = {"rl_algorithm": "iac", "reward_model_name": str(saved / "reward_model")}
    parts = {"agents": [str(saved / agent) for agent in AGENTS], "critics": critics}
    other = make_trainer("marlhf", tmp_path / "other", parts=parts, **options)
    asked = [dict.fromkeys(AGENTS, "p")], [{"agent_0": "x", "agent_1": "y"}]
    assert other.learner.reward_model(*asked) == trainer.learner.reward_model(*asked)
    assert same(weights(other), weights(trainer))
    other.train()


def test_what_a_madpo_run_saves(tmp_path):
    trainer = make_trainer("madpo-iter", tmp_path)
    trainer.train()
    trainer.save_model(tmp_path / "saved")
    for index, policy in enumerate(trainer.learner.policies.values()):
        model = AutoModelForCausalLM.from_pretrained(tmp_path / "saved" / f"agent_{index}")
        assert same(list(model.parameters()), list(policy.model.parameters()))


@pytest.mark.parametrize("kind", kinds("marlhf"))
def test_adapters_are_trained_and_their_base_stays(kind, tmp_path):
    pytest.importorskip("peft")
    options = {"comparator_policy": "history"} if kind.endswith("iter") else {}
    parts = {
        "agent_model": str(tmp_path / "model"),
        "model_config": {"lora": {"r": 2, "target_modules": ["q_proj", "v_proj"]}},
    }
    tiny(3).save(tmp_path / "model")
    trainer = make_trainer(kind, tmp_path / "run", parts=parts, **options)
    before = {
        agent: {n: t.clone() for n, t in policy.model.named_parameters()} for agent, policy in trainer.learner.policies.items()
    }
    trainer.train()
    for agent, policy in trainer.learner.policies.items():
        moved = {name for name, tensor in policy.model.named_parameters() if not torch.equal(tensor, before[agent][name])}
        assert moved
        assert all("lora" in name for name in moved)


# ---- rounds ----


def test_the_reward_model_is_a_new_one_in_each_round(tmp_path):
    """As the fit begins it has the weights of the start, whatever the round before has made of them."""
    trainer = make_trainer("marlhf-iter", tmp_path)
    model = trainer.learner.reward_model
    seen = []
    for phase in trainer.phases:
        if isinstance(phase, FitPhase):
            phase.begin = watching(phase.begin, seen, model)
    trainer.train()
    (before_1, after_1), (before_2, after_2) = seen
    assert same(before_1, after_1)
    assert same(after_1, after_2)
    assert not same(before_2, after_2)


def watching(begin: Any, seen: list, model: Any) -> Any:
    def watched(env_step: int) -> list[Metrics]:
        before = parameters_of(model)
        metrics = begin(env_step)
        seen.append((before, parameters_of(model)))
        return metrics

    return watched


def parameters_of(model: Any) -> list[torch.Tensor]:
    return [p.detach().clone() for p in (*model.critic.body_parameters(), *model.critic.head_parameters())]


class TestWhatRanks:
    """`preference_scoring_reward`: the task, or the model of the round before."""

    def ranked(self, trainer: Any) -> list[bool]:
        """Whether it was the task, in each round."""
        found = []

        def noting(train: Any, rounds: list[bool]) -> Any:
            def noted(chunk: Any, numbering: Numbering) -> Any:
                outcome = train(chunk, numbering)
                for step in outcome.steps:
                    (task,) = reward(*([completion.text] for completion in step.completions.values()))
                    rounds.append(step.rewards["agent_0"] == pytest.approx(task))
                return outcome

            return noted

        for phase in trainer.phases:
            if isinstance(phase, CollectPhase):
                found.append([])
                phase.train = noting(phase.train, found[-1])
        trainer.train()
        return [all(values) for values in found]

    def test_the_task(self, tmp_path):
        assert self.ranked(make_trainer("marlhf-iter", tmp_path)) == [True, True]

    def test_the_model_of_the_round_before(self, tmp_path):
        trainer = make_trainer("marlhf-iter", tmp_path, preference_scoring_reward="reward_model")
        model, scored = trainer.learner.reward_model, []
        collecting = trainer.phases[3]
        train = collecting.train

        def noting(chunk: Any, numbering: Numbering) -> Any:
            outcome = train(chunk, numbering)
            for step in outcome.steps:
                texts = {agent: completion.text for agent, completion in step.completions.items()}
                scored.append((step.rewards["agent_0"], model([step.prompts], [texts])[0]))
            return outcome

        collecting.train = noting
        assert self.ranked(trainer) == [True, False]
        assert [one for one, _ in scored] == pytest.approx([other for _, other in scored], abs=1e-4)
        pairs = read_round(tmp_path / "preference_replay" / "iteration_0002.json")
        assert {round(pair.winner.raw_reward, 3) for pair in pairs} <= {round(one, 3) for one, _ in scored}

    def test_the_task_until_a_model_is_fitted(self, tmp_path):
        """The first round has no pairs: its model has seen nothing."""
        options = {"preference_scoring_reward": "reward_model", "num_iterations": 3}
        sometimes = Sometimes(flat_in=0)
        trainer = sometimes.trainer = make_trainer("marlhf-iter", tmp_path, reward=sometimes, **options)
        with pytest.warns(UserWarning, match="round 1 of 3.*nothing is trained on"):
            assert self.ranked(trainer) == [False, True, False]
        counts = values_of(trainer, "iter/current_preference_pairs")
        assert counts[0] == 0 < counts[1]

    def test_a_round_without_pairs_keeps_the_model(self, tmp_path):
        sometimes = Sometimes(flat_in=3)
        trainer = sometimes.trainer = make_trainer("marlhf-iter", tmp_path, reward=sometimes)
        model, seen = trainer.learner.reward_model, []
        trainer.phases[4].begin = watching(trainer.phases[4].begin, seen, model)
        with pytest.warns(UserWarning, match="round 2 of 2.*nothing is trained on"):
            trainer.train()
        ((before, after),) = seen
        assert same(before, after)
        assert same(after, parameters_of(model))
        assert model.updates > 0


class Sometimes:
    """A reward with nothing to prefer in one phase of a trainer."""

    def __init__(self, flat_in: int) -> None:
        self.flat_in = flat_in
        self.trainer: Any = None

    def __call__(self, first: Sequence[str], second: Sequence[str]) -> list[float]:
        return (flat if self.trainer.position.phase == self.flat_in else reward)(first, second)


@pytest.mark.parametrize("kind", ["madpo-iter", pytest.param("marlhf-iter", marks=pytest.mark.slow)])
def test_rounds_are_written_and_counted(kind, tmp_path):
    trainer = make_trainer(kind, tmp_path, preference_replay_mode="all_history", preference_replay_sample_size=5)
    trainer.train()
    files = round_files(trainer)
    assert list(files) == ["preference_replay/iteration_0001.json", "preference_replay/iteration_0002.json"]
    counts = [document["num_pairs"] for document in files.values()]
    assert [document["iteration"] for document in files.values()] == [1, 2]
    assert values_of(trainer, "iter/current_preference_pairs") == counts
    assert values_of(trainer, "iter/total_preference_pairs") == [counts[0], sum(counts)]
    assert values_of(trainer, "iter/train_preference_pairs") == [5, 5]
    assert {len(document["pairs"]) for document in files.values()} == set(counts)


@pytest.mark.parametrize("kind", ["madpo-iter", pytest.param("marlhf-iter", marks=pytest.mark.slow)])
def test_a_second_run_of_one_trainer_begins_its_rounds_anew(kind, tmp_path):
    """As every other learner's does; env steps are counted on."""
    trainer = make_trainer(kind, tmp_path, preference_replay_mode="all_history")
    trainer.train()
    first, before = round_files(trainer), trainer.numbering.env_step
    trainer.train()
    assert trainer.numbering.env_step > before
    assert values_of(trainer, "iter/current_iteration") == [1, 2, 1, 2]
    second = round_files(trainer)
    assert second.keys() == first.keys()
    assert second != first
    # What the first run stored is no round of the second.
    assert values_of(trainer, "iter/train_preference_pairs")[2] == second["preference_replay/iteration_0001.json"]["num_pairs"]


def test_folders_of_ones_own(tmp_path):
    options = {"preference_replay_dir": str(tmp_path / "pairs"), "policy_checkpoint_dir": str(tmp_path / "team")}
    trainer = make_trainer("madpo-iter", tmp_path / "run", num_iterations=3, **options)
    initial = weights(trainer)
    seen = []
    for phase in trainer.phases:
        if isinstance(phase, CollectPhase):
            phase.begin = (lambda begin: lambda env_step: (seen.append(weights(trainer)), begin(env_step))[1])(phase.begin)
    trainer.train()
    assert len(list((tmp_path / "pairs").glob("iteration_*.json"))) == 3
    assert not (tmp_path / "run" / "preference_replay").exists()
    assert {path.name for path in (tmp_path / "team").iterdir()} == {"initial", "iteration_0001", "iteration_0002"}
    for name, expected in zip(("initial", "iteration_0001", "iteration_0002"), seen, strict=True):
        models = [AutoModelForCausalLM.from_pretrained(tmp_path / "team" / name / agent) for agent in AGENTS]
        assert same([p for model in models for p in model.parameters()], expected)
    assert same(seen[0], initial)
    other = make_trainer("madpo-iter", tmp_path / "other", **options)
    with pytest.raises(ValueError, match=r"iteration_0001\.json is a round of another run"):
        other.train()
    assert other.numbering.env_step == 0


def test_the_distributions_of_rewards(tmp_path):
    def ranged(first: Sequence[str], second: Sequence[str]) -> list[float]:
        return reward(first, second)

    set_reward_range(ranged, -3.0, 3.0)
    trainer = make_trainer("madpo-iter", tmp_path, reward=ranged, log_reward_distribution=True, comparator_num_candidates=2)
    trainer.train()
    files = round_files(trainer)
    for iteration in (1, 2):
        document = files[f"reward_distributions/iteration_000{iteration}.json"]
        pairs = files[f"preference_replay/iteration_000{iteration}.json"]["num_pairs"]
        assert document["candidates"]["target"]["count"] == 3 * len(ITEMS)
        assert document["candidates"]["comparator"]["count"] == 2 * len(ITEMS)
        assert document["selected_pairs"]["target"]["count"] == document["selected_pairs"]["comparator"]["count"] == pairs
    assert values_of(trainer, "reward_distribution/candidates/target/count") == [3 * len(ITEMS)] * 2


# ---- parts ----


class Steps:
    """Learns from pairs by noting them."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    def train_step(self, pairs: Sequence[Any]) -> dict[str, float]:
        self.batches.append(list(pairs))
        return {"loss": float(len(self.batches)), "grad_norm": 1.0} if len(self.batches) % 2 else {"loss": float(len(self.batches))}

    def flush(self) -> dict[str, float]:
        return {"grad_norm": 5.0}


def fit(learner: Steps, pairs: Sequence[int], **options: Any) -> FitPhase:
    given = {"epochs": 2, "batch_size": 2, "path": (0, 1), "meter": Meter(), "prefix": "p", "changes_policies": True, **options}
    return FitPhase("fit", learner, lambda: pairs, **given)  # type: ignore[arg-type]


def test_a_pass_visits_every_pair_once_in_an_order_of_its_own():
    phase = fit(Steps(), list(range(10, 20)))
    orders = [[pair for _, pair in phase.rows(epoch, 0)] for epoch in (0, 1)]
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(10, 20))
    assert orders[0] != orders[1] != sorted(orders[1])
    assert [pair for _, pair in phase.rows(1, 7)] == orders[1][7:]
    assert orders[0] != [pair for _, pair in fit(Steps(), list(range(10, 20)), path=(0, 2)).rows(0, 0)]
    assert phase.num_rows() == 10


def test_a_pass_logs_the_means_of_its_batches():
    """Norms are there only where a step was, and at the end: (1 + 5) / 2."""
    learner = Steps()
    phase = fit(learner, [1, 2, 3], at_end=lambda: {"holdout_loss": 7.0})
    for chunk in ([(0, 1), (1, 2)], [(2, 3)]):
        phase.train(chunk, Numbering())
    (entry,) = phase.end_epoch(1, 3, 40)
    assert entry == Metrics(40, {"p/loss": 1.5, "p/grad_norm": 3.0, "p/holdout_loss": 7.0, "p/epoch": 2}, group=PASS_GROUP)
    assert learner.batches == [[1, 2], [3]]
    phase.train([(0, 1)], Numbering())
    assert phase.end_epoch(1, 1, 40)[0].values["p/loss"] == 3.0
    assert fit(Steps(), []).end_epoch(0, 0, 40) == []


def test_passes_are_logged_whatever_the_gap_between_entries():
    gate = LoggingGate(50)
    found = [gate.admits(Metrics(step, {}, group=group)) for step, group in [(1, "a"), (2, "a"), (2, PASS_GROUP), (2, PASS_GROUP)]]
    assert found == [True, False, True, True]


class TestRolloutsThatAreWanted:
    """A phase of rollouts that depends on what earlier ones have found."""

    @pytest.fixture
    def make(self, tmp_path):
        def build(wanted: Any) -> RolloutPhase:
            args = MAGRPOConfig(num_generations=2, max_new_tokens=4)
            env = TaskEnv(Task(reward=reward, items=ITEMS))
            learner: Learner = MAGRPO(team(), args)
            return RolloutPhase(Sampler(env, args), learner, 3, first_epoch=4, wanted=wanted)

        return build

    def test_it_has_rows_only_then(self, make):
        answers = [False]
        phase = make(lambda: answers[0])
        assert (phase.epochs, phase.num_rows(), list(phase.rows(0, 0))) == (3, 0, [])
        assert phase.end_epoch(0, 0, 0) == []
        answers[0] = True
        assert (phase.epochs, phase.num_rows(), len(list(phase.rows(0, 1)))) == (3, len(ITEMS), len(ITEMS) - 1)
        with pytest.raises(ValueError, match="gave no rows in epoch 0"):
            phase.end_epoch(0, 0, 0)

    def test_its_epochs_go_on_with_fresh_orders(self, make):
        args = MAGRPOConfig(num_generations=2, shuffle=True)
        sampler = Sampler(TaskEnv(Task(reward=reward, items=ITEMS * 3)), args)
        orders = [[index for index, _ in sampler.items(epoch, 0)] for epoch in range(4)]
        phases = [RolloutPhase(sampler, MAGRPO(team(), args), 2, first_epoch=first) for first in (0, 2)]
        assert [[index for index, _ in phase.rows(epoch, 0)] for phase in phases for epoch in (0, 1)] == orders
        assert len({tuple(order) for order in orders}) == 4


def test_no_run_warns_of_anything(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_trainer("marlhf-iter", tmp_path, num_iterations=1).train()
