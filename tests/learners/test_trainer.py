"""Guards the loop of a run: what is collected together, when evaluation comes, resume bit for bit, and early errors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer

from learners.models import ModelConfig
from learners.reinforce import MAGRPO, MAGRPOConfig
from learners.sampling import SamplingConfig
from learners.trainer import Trainer
from learners.trainers import MAGRPOTrainer, MAREINFORCETrainer, MAReMaxTrainer, MARLOOTrainer
from llm_envs.env import TaskEnv
from llm_envs.task import Task
from llm_envs.types import EnvStep
from llm_envs.wrappers import TaggedSections

ITEMS = [{"prompt": f"item {i}: {'abc'[: i % 3]}"} for i in range(5)]
LEARNING = {"agent_learning_rate": 1e-2, "temperature": 1.0, "top_p": 1.0, "top_k": None, "max_new_tokens": 5, "num_generations": 2}


def reward(first: Sequence[str], second: Sequence[str]) -> list[float]:
    return [sum(a.encode()) % 17 / 7 - sum(b.encode()) % 11 / 5 for a, b in zip(first, second, strict=True)]


def answer(agent_completions: Sequence[str]) -> list[str]:
    return [text[:4] + "?" for text in reversed(agent_completions)]


def make_env(num_turns: int = 1, items: object = ITEMS, **options: object) -> TaskEnv:
    transition = answer if num_turns > 1 else None
    return TaskEnv(Task(reward=reward, items=items, eval_items=ITEMS[:3], num_turns=num_turns, transition=transition, **options))


def config(**options: object) -> MAGRPOConfig:
    return MAGRPOConfig(
        **{**LEARNING, "num_train_epochs": 2, "logging_steps": 1, "eval_interval": 2, "eval_num_samples": 2, **options}
    )


@pytest.fixture
def make_trainer(tiny_policy, tmp_path):
    """`make_trainer(config, folder=, num_turns=, …)`: equal trainers in folders of their own."""

    def make(args: MAGRPOConfig, folder: str = "run", num_turns: int = 1, items: object = ITEMS, **options: object) -> Trainer:
        env = make_env(num_turns, items)
        sampling = SamplingConfig(max_new_tokens=5)
        policies = {agent: tiny_policy(seed=i, layers=1, sampling=sampling) for i, agent in enumerate(env.possible_agents)}
        return Trainer(env, MAGRPO(policies, args), args, output_dir=tmp_path / folder, progress=False, **options)

    return make


def weights(trainer: Trainer) -> list[torch.Tensor]:
    return [p.detach().clone() for policy in trainer.learner.policies.values() for p in policy.parameters()]


def same(first: Trainer, second: Trainer) -> bool:
    return all(torch.equal(a, b) for a, b in zip(weights(first), weights(second), strict=True))


def logged(trainer: Trainer) -> list[dict]:
    """Lines of metrics.jsonl but for clock readings."""
    lines = [json.loads(line) for line in (trainer.output_dir / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if not any(name.startswith("time/") for name in line)]


def recorded(trainer: Trainer) -> list[dict]:
    return [json.loads(line) for line in (trainer.output_dir / "stream.jsonl").read_text().splitlines()]


def test_a_run_trains_logs_and_records(make_trainer):
    trainer = make_trainer(config(), record=True)
    before = weights(trainer)
    trainer.train()
    assert not all(torch.equal(a, b) for a, b in zip(before, weights(trainer), strict=True))
    assert trainer.numbering.env_step == 2 * 5 * 2
    names = {name for line in logged(trainer) for name in line}
    assert {"turn_1/reward_mean", "turn_1/expected_return", "agent_0/loss", "agent_1/grad_norm", "agent_0/entropy"} <= names
    assert {"eval/turn_1/reward_mean", "agent_0/completion_length", "agent_0/cut_share", "zero_spread_share"} <= names
    assert [line["env_step"] for line in recorded(trainer)] == list(range(1, 21))


def test_evaluation_comes_before_items_0_2_4_of_every_epoch(make_trainer):
    trainer = make_trainer(config(rollout_buffer_size=4))
    trainer.train()
    evaluated = [line["env_step"] for line in logged(trainer) if "eval/turn_1/reward_mean" in line]
    assert evaluated == [0, 4, 8, 10, 14, 18]


def test_evaluation_changes_nothing_about_training(make_trainer):
    often, never = make_trainer(config(eval_interval=1), "often"), make_trainer(config(eval_interval=0), "never")
    often.train()
    never.train()
    assert same(often, never)
    training = [line for line in logged(often) if not any(name.startswith("eval/") for name in line)]
    assert training == logged(never)


def test_evaluating_twice_faces_the_same_chance_and_leaves_the_weights(make_trainer):
    trainer = make_trainer(config())
    before = weights(trainer)
    assert trainer.evaluate(3) == trainer.evaluate(3) != {}
    assert all(torch.equal(a, b) for a, b in zip(before, weights(trainer), strict=True))
    assert len(trainer.last_evaluation) == 3
    assert trainer.evaluate(0) == {}


def test_eval_batch_size_does_not_change_the_evaluation(make_trainer):
    one, many = make_trainer(config(eval_batch_size=1), "one"), make_trainer(config(eval_batch_size=3), "many")
    assert one.evaluate(3) == pytest.approx(many.evaluate(3))


def test_greedy_evaluation_differs_from_sampled_and_repeats(make_trainer):
    greedy = make_trainer(config(eval_temperature=0))
    greedy.evaluate(2)
    texts = [step.completions["agent_0"].text for step in greedy.last_evaluation]
    other = make_trainer(config(eval_temperature=0, seed=9), "other")
    other.evaluate(2)
    assert texts == [step.completions["agent_0"].text for step in other.last_evaluation]
    sampled = make_trainer(config(), "sampled")
    sampled.evaluate(2)
    assert texts != [step.completions["agent_0"].text for step in sampled.last_evaluation]


@pytest.mark.parametrize("num_turns", [1, 2])
def test_items_collected_together_give_the_run_of_one_by_one_collection(make_trainer, num_turns):
    together = make_trainer(config(rollout_buffer_size=7, eval_interval=0), "together", num_turns, record=True)
    alone = make_trainer(config(rollout_buffer_size=7, eval_interval=0), "alone", num_turns, record=True)
    sizes = []
    (phase,) = together.phases
    train = phase.train
    phase.train = lambda chunk, numbering: (sizes.append(len(chunk)), train(chunk, numbering))[1]
    together.train()
    alone.phases[0].chunk_size = lambda: 1
    alone.train()
    assert max(sizes) == {1: 5, 2: 3}[num_turns]
    assert alone.numbering == together.numbering
    texts = [[{a: c["text"] for a, c in line["completions"].items()} for line in recorded(t)] for t in (together, alone)]
    assert texts[0] == texts[1]
    for one, other in zip(weights(together), weights(alone), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


class Rows:
    """An iterable without length that can be read again and again."""

    def __iter__(self) -> Iterator[Mapping]:
        return iter(ITEMS)


def test_iterables_without_length_train_like_lists(make_trainer):
    listed = make_trainer(config(eval_interval=0), "list")
    listed.train()
    for number, rows in enumerate([Rows(), Dataset.from_list(ITEMS), Dataset.from_list(ITEMS).to_iterable_dataset()]):
        trainer = make_trainer(config(eval_interval=0), f"rows{number}", items=rows)
        trainer.train()
        assert same(trainer, listed)


class Once:
    """Rows that can be read a single time, though it does not look so."""

    def __init__(self) -> None:
        self._rows = iter(ITEMS)

    def __iter__(self) -> Iterator[Mapping]:
        return self._rows


def test_an_iterable_that_is_used_up_is_an_error_in_the_second_epoch(make_trainer):
    trainer = make_trainer(config(), items=Once())
    with pytest.raises(ValueError, match="gave no rows in epoch 1"):
        trainer.train()


def test_shuffling_gives_every_epoch_its_own_order_of_all_items(make_trainer):
    def order(trainer: Trainer) -> list[list[int]]:
        trainer.train()
        items = [step["infos"]["agent_0"]["item_index"] for step in recorded(trainer)][::2]
        return [items[:5], items[5:]]

    shuffled = {"shuffle": True, "eval_interval": 0}
    first, second = order(make_trainer(config(**shuffled), "a", record=True))
    assert sorted(first) == sorted(second) == [0, 1, 2, 3, 4]
    assert first != second
    assert [first, second] == order(make_trainer(config(**shuffled), "b", record=True))
    assert [first, second] != order(make_trainer(config(**shuffled, seed=1), "c", record=True))
    with pytest.raises(ValueError, match="shuffle=True needs items with a length"):
        make_trainer(config(shuffle=True), items=Rows())


@pytest.mark.parametrize(("num_turns", "every"), [(1, 1), (2, 4), pytest.param(2, 1, marks=pytest.mark.slow)])
def test_a_run_resumed_from_any_checkpoint_equals_the_whole_run(make_trainer, num_turns, every):
    options = {"reference_kl_enabled": True, "rollout_buffer_size": 3, "shuffle": True, "lr_scheduler_type": "linear"}
    options |= {"eval_num_samples": 1} if num_turns > 1 else {}
    args = config(**options, lr_decay_steps=40, warmup_steps=2, logging_steps=3)
    whole = make_trainer(args, "whole", num_turns, record=True)
    whole.train(checkpoint_dir=whole.output_dir / "checkpoints", checkpoint_interval=1)
    checkpoints = sorted((whole.output_dir / "checkpoints").glob("checkpoint-*"))
    assert len(checkpoints) >= 4
    for number, checkpoint in enumerate(checkpoints[every // 2 :: every]):
        resumed = make_trainer(args, f"resumed{number}", num_turns, record=True)
        # The run's folder as a killed run leaves it: with lines that were written after the checkpoint.
        resumed.output_dir.mkdir()
        for name in ("metrics.jsonl", "stream.jsonl"):
            (resumed.output_dir / name).write_bytes((whole.output_dir / name).read_bytes())
        resumed.train(checkpoint)
        assert same(resumed, whole)
        assert logged(resumed) == logged(whole)
        assert (resumed.output_dir / "stream.jsonl").read_bytes() == (whole.output_dir / "stream.jsonl").read_bytes()


def test_resume_goes_on_with_another_learning_rate_and_more_epochs(make_trainer):
    first = make_trainer(config(num_train_epochs=1), "first")
    first.train(checkpoint_dir=first.output_dir / "checkpoints")
    longer = config(num_train_epochs=3, agent_learning_rate=1e-4, eval_interval=0, logging_steps=7)
    second = make_trainer(longer, "first")
    second.train("latest", checkpoint_dir=first.output_dir / "checkpoints")
    assert second.numbering.env_step == 3 * 5 * 2
    assert second.learner.state_dict()["teams"]["agent_0"]["optimizer"]["updates"] > first.learner.state_dict()["updates"]


def test_a_checkpoint_of_other_options_is_refused_before_anything_changes(make_trainer):
    first = make_trainer(config(), "first")
    first.train(checkpoint_dir=first.output_dir / "checkpoints")
    other = make_trainer(config(num_generations=3, max_new_tokens=4), "other")
    before = weights(other)
    with pytest.raises(ValueError, match=r"num_generations.*2.*3"):
        other.train("latest", checkpoint_dir=first.output_dir / "checkpoints")
    assert all(torch.equal(a, b) for a, b in zip(before, weights(other), strict=True))
    with pytest.raises(ValueError, match="items"):
        make_trainer(config(), "rows", items=ITEMS[:4]).train("latest", checkpoint_dir=first.output_dir / "checkpoints")
    with pytest.raises(ValueError, match="num_turns"):
        make_trainer(config(), "turns", num_turns=2).train("latest", checkpoint_dir=first.output_dir / "checkpoints")
    shorter = make_trainer(config(num_train_epochs=1), "shorter")
    with pytest.raises(ValueError, match="num_train_epochs=1 is less than the 2 epochs already done"):
        shorter.train("latest", checkpoint_dir=first.output_dir / "checkpoints")


def test_a_new_run_does_not_mix_its_logs_with_those_of_another(make_trainer):
    make_trainer(config()).train()
    with pytest.raises(ValueError, match=r"holds metrics\.jsonl of an earlier run"):
        make_trainer(config()).train()


def test_training_twice_goes_on_in_the_same_logs(make_trainer):
    trainer = make_trainer(config(num_train_epochs=1))
    trainer.train()
    trainer.train()
    assert trainer.numbering.env_step == 2 * 5 * 2


def test_resume_in_another_folder_begins_logs_there(make_trainer):
    first = make_trainer(config(num_train_epochs=1), "first")
    first.train(checkpoint_dir=first.output_dir / "c")
    second = make_trainer(config(), "second")
    second.train("latest", checkpoint_dir=first.output_dir / "c")
    assert min(line["env_step"] for line in logged(second)) == 10


def test_resume_without_a_checkpoint_is_an_error(make_trainer, tmp_path):
    with pytest.raises(ValueError, match="no complete checkpoint"):
        make_trainer(config()).train("latest", checkpoint_dir=tmp_path / "none")
    with pytest.raises(ValueError, match="needs the checkpoint_dir"):
        make_trainer(config(), "other").train("latest")
    with pytest.raises(ValueError, match="need a checkpoint_dir"):
        make_trainer(config(), "third").train(checkpoint_interval=2)


def test_checkpoint_total_limit_keeps_the_newest(make_trainer):
    trainer = make_trainer(config(num_train_epochs=1))
    trainer.train(checkpoint_dir=trainer.output_dir / "c", checkpoint_interval=1, checkpoint_total_limit=2)
    assert len(list((trainer.output_dir / "c").glob("checkpoint-*"))) == 2


def test_the_checkpoint_resumed_from_is_kept_however_its_path_is_written(make_trainer, tmp_path):
    first = make_trainer(config(num_train_epochs=1), "first")
    first.train(checkpoint_dir=tmp_path / "c")
    (tmp_path / "link").symlink_to(tmp_path / "c")
    (checkpoint,) = (tmp_path / "link").glob("checkpoint-*")
    second = make_trainer(config(), "second")
    second.train(checkpoint, checkpoint_dir=tmp_path / "c", checkpoint_interval=1, checkpoint_total_limit=1)
    assert len(list((tmp_path / "c").glob("checkpoint-*"))) == 2
    assert checkpoint.is_dir()


def test_a_checkpoint_saved_and_loaded_by_hand(make_trainer, tmp_path):
    first = make_trainer(config(num_train_epochs=1))
    first.train()
    checkpoint = first.save_checkpoint(tmp_path / "by hand")
    assert checkpoint.parent == tmp_path / "by hand"
    second = make_trainer(config(num_train_epochs=1), "second")
    second.load_checkpoint(checkpoint)
    assert same(first, second)
    assert (second.numbering, second.position) == (first.numbering, first.position)
    assert second.evaluate() == first.evaluate()
    with pytest.raises(ValueError, match="discount"):
        make_trainer(config(num_train_epochs=1, discount=0.5), "third").load_checkpoint(checkpoint)


def test_saved_agents_load_with_from_pretrained(make_trainer, tmp_path):
    trainer = make_trainer(config(num_train_epochs=1))
    trainer.train()
    trainer.save_model(tmp_path / "saved")
    for index, policy in enumerate(trainer.learner.policies.values()):
        model = AutoModelForCausalLM.from_pretrained(tmp_path / "saved" / f"agent_{index}")
        tokenizer = AutoTokenizer.from_pretrained(tmp_path / "saved" / f"agent_{index}")
        ids = torch.tensor([tokenizer("item 1")["input_ids"]])
        assert torch.equal(model(ids).logits, policy.model(ids).logits)


def test_callback_logger_and_aggregator(make_trainer):
    calls = []

    def lengths(rollouts: list[dict]) -> dict[str, float]:
        calls.append(rollouts)
        return {"chars": sum(len(row["completion"]) for row in rollouts)}

    def logger(*, agent_completions_turns: list, batch_items: list, prompts: list) -> list[dict]:
        assert len(agent_completions_turns) == 2
        assert [len(turns) for turns in agent_completions_turns[0]] == [2, 2]
        assert prompts == [item["prompt"] for item in batch_items]
        return [{"first": len(agent_completions_turns[0][i][0])} for i in range(len(batch_items))]

    def aggregator(records: list[dict], num_turns: int) -> dict[str, float]:
        assert num_turns == 2
        return {"first_length": sum(record["first"] for record in records) / len(records)}

    functions = {"metrics_callback": lengths, "eval_logger": logger, "eval_aggregator": aggregator}
    trainer = make_trainer(config(num_train_epochs=1), num_turns=2, **functions)
    values = trainer.evaluate()
    assert {"eval/chars", "eval/first_length", "eval/turn_2/reward_mean"} <= values.keys()
    trainer.train()
    assert any("chars" in line for line in logged(trainer))
    assert {"agent_idx", "prompt", "completion", "reward", "turn", "metadata"} == calls[0][0].keys()


@pytest.mark.parametrize("returned", [3.0, {"a": "b"}, None])
def test_a_callback_that_returns_no_numbers_is_an_error(make_trainer, returned):
    trainer = make_trainer(config(), metrics_callback=lambda rollouts: returned)
    with pytest.raises(TypeError, match="metrics_callback must return"):
        trainer.evaluate()


def test_one_of_logger_and_aggregator_is_an_error(make_trainer):
    with pytest.raises(ValueError, match="eval_aggregator is missing"):
        make_trainer(config(), eval_logger=lambda **kwargs: [])


def test_a_sink_that_fails_does_not_stop_training(make_trainer):
    class Broken:
        def log(self, env_step: int, values: Mapping[str, float]) -> None:
            raise OSError("disk full")

        def close(self) -> None:
            pass

    args = config(num_train_epochs=1)
    trainer, whole = make_trainer(args, "broken", sinks=[Broken()]), make_trainer(args, "whole")
    with pytest.warns(UserWarning, match="logging to Broken failed"):
        trainer.train()
    whole.train()
    assert same(trainer, whole)


def test_a_failing_reward_stops_the_run_and_keeps_its_cause(tiny_policy, tmp_path):
    def broken(first: list[str], second: list[str]) -> list[float]:
        raise KeyError("answer")

    env = TaskEnv(Task(reward=broken, items=ITEMS))
    policies = {agent: tiny_policy() for agent in env.possible_agents}
    trainer = Trainer(env, MAGRPO(policies, config()), config(), output_dir=tmp_path / "run", progress=False)
    with pytest.raises(RuntimeError, match="broken") as failure:
        trainer.train()
    assert isinstance(failure.value.__cause__, KeyError)


OTHERS = (MAREINFORCETrainer, MARLOOTrainer, MAReMaxTrainer)
ONE_AND_THE_OTHERS = [MAGRPOTrainer, *(pytest.param(other, marks=pytest.mark.slow) for other in OTHERS)]


class TestNamedTrainers:
    """`MAGRPOTrainer(...)` and its siblings build a run from functions, data and models."""

    @pytest.mark.parametrize("trainer_class", ONE_AND_THE_OTHERS)
    def test_from_functions_and_loaded_models(self, trainer_class, tiny_model, byte_tokenizer, tmp_path):
        trainer = trainer_class(
            agents=[tiny_model(seed=0, layers=1), tiny_model("gpt2", seed=1, layers=1)],
            tokenizer=byte_tokenizer,
            train_dataset=Dataset.from_list(ITEMS),
            eval_dataset=ITEMS,
            reward_func=reward,
            formatters=[lambda item: "a " + item["prompt"], lambda item: "b " + item["prompt"]],
            external_transition=answer,
            args=trainer_class.learner_class.config_class(**LEARNING, num_train_epochs=1),
            output_dir=tmp_path / "run",
            progress=False,
        )
        assert trainer.env.num_turns == 2
        before = weights(trainer)
        trainer.train()
        assert any(not torch.equal(a, b) for a, b in zip(before, weights(trainer), strict=True))

    def test_a_centralised_team_is_one_model_for_all_roles(self, tiny_model, byte_tokenizer, tmp_path):
        options = {"tokenizer": byte_tokenizer, "train_dataset": ITEMS, "reward_func": reward, "progress": False}
        args = config(num_agents=2, collaboration_mode="centralized", num_train_epochs=1, prompt_overflow="truncate_left")
        trainer = MAGRPOTrainer(agents=[tiny_model()], args=args, output_dir=tmp_path / "run", record=True, **options)
        with pytest.warns(UserWarning, match="was cut"):
            trainer.train()
        (step, *_) = recorded(trainer)
        assert list(step["rewards"]) == ["team_0"]
        assert {"role_completion/agent_0", "role_completion/agent_1"} <= step["infos"]["team_0"].keys()
        with pytest.raises(ValueError, match="team_adapter needs args"):
            MAGRPOTrainer(agents=[tiny_model()] * 2, args=config(), team_adapter=TaggedSections(("a", "b")), **options)

    @pytest.mark.parametrize("trainer_class", ONE_AND_THE_OTHERS)
    def test_threads_on_devices_of_their_own_train_to_the_same_weights(self, trainer_class, tiny_model, byte_tokenizer, tmp_path):
        results = []
        for placement in ({}, {"parallel_training": "mp", "agent_devices": ["cpu", "cpu"], "reference_devices": ["cpu", "cpu"]}):
            trainer = trainer_class(
                agents=[tiny_model(seed=0, layers=1), tiny_model(seed=1, layers=1)],
                tokenizer=byte_tokenizer,
                env=make_env(2),
                args=trainer_class.learner_class.config_class(
                    **LEARNING, **placement, reference_kl_enabled=True, num_train_epochs=1, logging_steps=1
                ),
                output_dir=tmp_path / f"run{len(results)}",
                progress=False,
                reward_workers=2,
            )
            trainer.train()
            results.append(trainer)
        assert same(*results)
        assert logged(results[0]) == logged(results[1])

    @pytest.mark.parametrize(
        ("options", "error", "message"),
        [
            ({}, ValueError, "reward_func is missing"),
            ({"reward_func": reward}, ValueError, "train_dataset is missing"),
            (
                {"env": make_env(), "reward_func": reward},
                ValueError,
                "env stands for .* give one or the other, not env and reward_func",
            ),
            ({"env": make_env(), "policies": {}, "agent_model": "tiny"}, ValueError, "not policies and agent_model"),
            ({"env": make_env()}, ValueError, "which models act"),
            ({"env": make_env(), "num_agents": 3}, ValueError, "disagree: num_agents=3, len\\(policies\\)=2|team"),
            ({"env": make_env(), "args": config(num_agents=5)}, ValueError, "5"),
            ({"env": make_env(), "args": config(num_turns=2)}, ValueError, "num_turns=2, but the env has num_turns=1"),
            (
                {"reward_func": reward, "train_dataset": ITEMS, "num_agents": 2, "args": config(num_agents=3)},
                ValueError,
                "disagree",
            ),
            ({"reward_func": reward, "train_dataset": ITEMS, "args": config(num_turns=2)}, ValueError, "needs a transition"),
            ({"reward_func": lambda a: [1.0], "train_dataset": ITEMS}, TypeError, "reward function"),
            ({"reward_func": reward, "train_dataset": []}, ValueError, "items has no rows"),
            ({"args": object()}, TypeError, "args of MAGRPOTrainer must be a MAGRPOConfig"),
        ],
    )
    def test_parts_that_do_not_fit_are_refused(self, options, error, message):
        with pytest.raises(error, match=message):
            MAGRPOTrainer(**options)

    def test_a_dtype_said_twice_is_compared_as_a_dtype(self, tmp_path):
        parts = {"env": make_env(), "agent_model": "tiny-random", "args": config(dtype="bfloat16"), "output_dir": tmp_path}
        for model_config in ({"dtype": torch.bfloat16}, {"torch_dtype": "torch.bfloat16"}, ModelConfig(), None):
            trainer = MAGRPOTrainer(**parts, model_config=model_config)
            assert {parameter.dtype for parameter in weights(trainer)} == {torch.bfloat16}
        with pytest.raises(ValueError, match=r"args\.dtype='bfloat16', but model_config says 'float32'"):
            MAGRPOTrainer(**parts, model_config={"torch_dtype": "float32"})

    def test_a_missing_field_names_row_field_and_agent(self, tiny_model, byte_tokenizer, tmp_path):
        trainer = MAGRPOTrainer(
            agents=[tiny_model(), tiny_model(seed=1)],
            tokenizer=byte_tokenizer,
            train_dataset=[{"prompt": "x"}, {"question": "y"}],
            reward_func=reward,
            args=config(),
            output_dir=tmp_path,
            progress=False,
        )
        with pytest.raises(ValueError, match=r"item 1 has no field 'prompt'.*agent_0"):
            trainer.train()


def test_the_stream_shows_what_the_learner_saw(make_trainer):
    from llm_envs.recording import read_steps

    seen: list[EnvStep] = []
    trainer = make_trainer(config(), record=True)
    update = trainer.learner.update
    trainer.learner.update = lambda steps: (seen.extend(steps), update(steps))[1]
    trainer.train()
    assert list(read_steps(trainer.output_dir / "stream.jsonl")) == seen


def test_evaluate_at_end_reaches_every_sink(make_trainer):
    class Kept:
        def __init__(self) -> None:
            self.entries: list[tuple[int, Mapping[str, float]]] = []

        def log(self, env_step: int, values: Mapping[str, float]) -> None:
            self.entries.append((env_step, values))

        def close(self) -> None:
            pass

    sink = Kept()
    trainer = make_trainer(config(eval_interval=0), sinks=[sink])
    trainer.train(evaluate_at_end=True)
    assert [step for step, values in sink.entries if "eval/turn_1/reward_mean" in values] == [20]
    assert [line["env_step"] for line in logged(trainer) if "eval/turn_1/reward_mean" in line] == [20]


class TestOptionsThatCannotApply:
    """An option that was set and would have no effect is an error."""

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"temperature": 0.5}, r"temperature=0\.5 cannot apply: the policy given for agent_0 has temperature=1\.0"),
            ({"max_new_tokens": 9}, "max_new_tokens=9 cannot apply"),
            ({"prompt_overflow": "truncate_left"}, "prompt_overflow='truncate_left' cannot apply"),
            ({"dtype": "bfloat16"}, "dtype='bfloat16' cannot apply"),
            ({"agent_devices": "meta"}, "agent_devices='meta' cannot apply"),
            ({"external_prompt_passthrough": True}, "external_prompt_passthrough cannot apply to an env"),
        ],
    )
    def test_with_policies_and_env_that_say_otherwise(self, tiny_policy, options, message):
        env = make_env()
        policies = {agent: tiny_policy(sampling=SamplingConfig(max_new_tokens=5)) for agent in env.possible_agents}
        base = {"top_p": 1.0, "top_k": None, "temperature": 1.0, "max_new_tokens": 5}
        with pytest.raises(ValueError, match=message):
            MAGRPOTrainer(env=env, policies=policies, args=MAGRPOConfig(**{**base, **options}))

    def test_defaults_leave_the_policies_their_own(self, tiny_policy, tmp_path):
        policy = tiny_policy(sampling=SamplingConfig(temperature=0.9, max_new_tokens=5))
        trainer = MAGRPOTrainer(env=make_env(), agents=[policy, policy], args=MAGRPOConfig(), output_dir=tmp_path, progress=False)
        assert trainer.learner.policies["agent_0"].sampling.temperature == 0.9

    def test_a_transition_that_is_never_called(self):
        with pytest.raises(ValueError, match=r"never called with args\.num_turns=1"):
            MAGRPOTrainer(reward_func=reward, train_dataset=ITEMS, external_transition=answer, args=config(num_turns=1))

    def test_reference_options_without_a_reference(self, tiny_policy):
        with pytest.raises(ValueError, match="needs reference_kl_enabled=True"):
            config(reference_devices="cpu")
        policies = {agent: tiny_policy() for agent in ("agent_0", "agent_1")}
        references = {agent: tiny_policy(seed=5) for agent in policies}
        with pytest.raises(ValueError, match="without use"):
            MAGRPO(policies, config(), references=references)
        with pytest.raises(ValueError, match="built already"):
            MAGRPO(policies, config(reference_kl_enabled=True, reference_devices="cpu"), references=references)
