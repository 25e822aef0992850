"""Guards the contract every environment and wrapper keeps, with and without a seed, through copies, and when driven by others."""

from __future__ import annotations

import copy
import pickle
import random

import cloudpickle
import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as check_gymnasium_env
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from pettingzoo import ParallelEnv

from llm_envs import RewardProcessors, Task, TaskEnv, list_envs, spec
from llm_envs.testing import check_env
from llm_envs.wrappers import JointAgent, ScoreWith, TransformReward, TurnLimit, Wrapper

ROWS = [{"prompt": f"question {i}: what is {i} + {i}?", "answer": str(2 * i)} for i in range(5)]


class Rows:
    """Rows without length or positions."""

    def __iter__(self):
        return iter(ROWS)


def per_agent(solver, critic, batch_items):
    return [[float(batch_items[0]["answer"] in s), len(c) / 100] for s, c in zip(solver, critic, strict=True)]


def brevity(*lists):
    return [-sum(map(len, joint)) / 100 for joint in zip(*lists, strict=True)]


def by_chance(state, agent_completions, num_agents):
    """Drawn from the state: a hint that all siblings share; solving ends the episode."""
    if agent_completions[0] == "solved":
        return None
    return [f"hint {state.rng().integers(1000)}: try again"] * num_agents


def conversation(item, external_prompts=None):
    return [{"role": "system", "content": "be brief"}, {"role": "user", "content": external_prompts or item["prompt"]}]


def task(**options):
    team = ["solver_0", "critic_0"]
    return Task(**{"items": ROWS, "agents": team, "reward": {"solved": per_agent, "brevity": brevity}, "name": "sums", **options})


def turns(n=3, **options):
    return task(num_turns=n, transition=by_chance, **options)


def score(prompts, completions):
    return [float(len("".join(completion.values()))) for completion in completions]


ENVS = {
    "one turn": lambda: TaskEnv(task()),
    "turns": lambda: TaskEnv(turns()),
    "one agent": lambda: TaskEnv(task(agents=1, reward=brevity)),
    "three agents of two roles": lambda: TaskEnv(turns(agents=["solver_0", "critic_0", "critic_1"], reward=brevity)),
    "conversations": lambda: TaskEnv(turns(formatters=conversation)),
    "passed prompts": lambda: TaskEnv(turns(external_prompt_passthrough=True, reward_processor=RewardProcessors.scale(0.1))),
    "rows without length": lambda: TaskEnv(turns(items=Rows())),
    "rendered": lambda: TaskEnv(turns(), render_mode="ansi"),
    "wrapped by nothing": lambda: Wrapper(TaskEnv(turns())),
    "joint": lambda: JointAgent(TaskEnv(turns())),
    "joint of conversations": lambda: JointAgent(TaskEnv(turns(formatters=conversation))),
    "transformed": lambda: TransformReward(TaskEnv(turns()), RewardProcessors.shift(-1)),
    "scored": lambda: ScoreWith(TaskEnv(turns()), score),
    "limited": lambda: TurnLimit(TaskEnv(turns(4)), 2),
    "limited to one": lambda: TurnLimit(TaskEnv(turns()), 1),
    "unlimited": lambda: TurnLimit(TaskEnv(turns()), 9),
    "all wrappers": lambda: JointAgent(
        TransformReward(ScoreWith(TurnLimit(TaskEnv(turns(4)), 2), score), RewardProcessors.scale(0.5))
    ),
    "all wrappers, the other way round": lambda: TurnLimit(ScoreWith(JointAgent(TaskEnv(turns(4))), score), 3),
}

WRAPPERS = {
    "itself": lambda env: env,
    "JointAgent": JointAgent,
    "TransformReward": lambda env: TransformReward(env, RewardProcessors.scale(2)),
    "ScoreWith": lambda env: ScoreWith(env, score),
    "TurnLimit": lambda env: TurnLimit(env, 1),
}


FURTHER = ("limited to one", "unlimited", "transformed", "joint of conversations")


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow if name in FURTHER else ()) for name in ENVS])
def test_contract(name):
    check_env(ENVS[name], episodes=2)


@pytest.mark.parametrize("name", ["turns", "rows without length", "all wrappers"])
def test_contract_of_copies(name):
    check_env(ENVS[name](), episodes=1)


# Wrappers know no task: a small one shows what they do, on the others it is a matter of time.
REGISTERED = [
    pytest.param(name, wrapper, marks=() if wrapper == "itself" or name == "split-v0" else pytest.mark.slow)
    for name in list_envs()
    for wrapper in WRAPPERS
]


@pytest.mark.parametrize(("name", "wrapper"), REGISTERED)
def test_contract_of_registered_envs(name, wrapper):
    entry = spec(name)
    check_env(lambda: WRAPPERS[wrapper](entry.make()), episodes=2)


def test_public_classes_list_parallel_env():
    for cls in (TaskEnv, Wrapper, JointAgent, TransformReward, ScoreWith, TurnLimit):
        assert ParallelEnv in cls.__bases__


# ---- the end of an episode (BC-40) ----


def finish(env, *texts):
    """Play until the end; what the last step returned."""
    env.reset(seed=0)
    for text in texts:
        assert env.agents == env.possible_agents
        returned = env.step(dict.fromkeys(env.possible_agents, text))
    assert env.agents == []
    for part in returned:
        assert list(part) == env.possible_agents, "everybody who acted gets everything"
    return returned


@pytest.mark.parametrize(
    ("env", "texts", "terminated"),
    [
        (lambda: TurnLimit(TaskEnv(turns(9)), 2), ["x", "x"], False),  # a limit from outside
        (lambda: TaskEnv(turns(2)), ["x", "x"], True),  # the task's own horizon
        (lambda: TurnLimit(TaskEnv(turns(9)), 2), ["solved"], True),  # solved before the limit
        (lambda: TurnLimit(TaskEnv(turns(9)), 2), ["x", "solved"], True),  # solved on the very last turn
        (lambda: TurnLimit(TaskEnv(turns(2)), 2), ["x", "x"], True),  # both limits at once
        (lambda: TaskEnv(task()), ["x"], True),
    ],
)
def test_all_end_together(env, texts, terminated):
    env = env()
    possible = list(env.possible_agents)
    _, _, terminations, truncations, _ = finish(env, *texts)
    assert set(terminations.values()) == {terminated}
    assert set(truncations.values()) == {not terminated}
    with pytest.raises(RuntimeError, match=r"call reset\(\) first"):
        env.step(dict.fromkeys(possible, "x"))
    env.reset()
    assert env.agents == env.possible_agents == possible


def test_flags_rewards_and_infos_are_plain():
    """Rewards are floats and flags bools, not numpy's; infos say what the run needs."""
    env = TaskEnv(task(reward=lambda a, b: np.array([2], dtype=np.int64)))
    env.reset(options={"item": 3})
    _, rewards, terminations, truncations, infos = env.step({"solver_0": "6", "critic_0": "ok"})
    assert {type(reward) for reward in rewards.values()} == {float}
    assert {type(flag) for flags in (terminations, truncations) for flag in flags.values()} == {bool}
    assert infos["solver_0"] == {"env_step": 1, "turn": 1, "item_index": 3, "raw_reward": 2.0}


def test_infos_hold_raw_rewards_and_terms():
    """12 = 10 · (1 + 0.2): the processor acts on the sum; the terms and the sum before it stay visible."""
    env = TaskEnv(task(reward={"one": lambda a, b: [1], "style": lambda a, b: [[0.2, 0.4]]}, reward_processor=lambda r: 10 * r))
    env.reset(seed=0)
    _, rewards, _, _, infos = env.step({"solver_0": "x", "critic_0": "y"})
    assert rewards == {"solver_0": 12.0, "critic_0": 14.0}
    assert infos["solver_0"] | {"reward/one": 1.0, "reward/style": 0.2, "raw_reward": 1.2} == infos["solver_0"]
    assert infos["critic_0"]["reward/style"] == 0.4


def test_env_steps_count_from_the_seed():
    env = TaskEnv(turns(2))

    def counts(seed):
        env.reset(seed=seed)
        return [env.step(dict.fromkeys(env.agents, "x"))[-1]["solver_0"]["env_step"] for _ in range(2)]

    assert [counts(0), counts(None), counts(0)] == [[1, 2], [3, 4], [1, 2]]


def test_actions_must_be_everybodys_texts():
    env = TaskEnv(task())
    with pytest.raises(RuntimeError, match=r"call reset\(\) first"):
        env.step({"solver_0": "", "critic_0": ""})
    for early in (env.state, env.snapshot):
        with pytest.raises(RuntimeError, match="no state yet"):
            early()
    env.reset(seed=0)
    for actions in ({}, {"solver_0": ""}, {"solver_0": "", "critic_0": "", "critic_1": ""}):
        with pytest.raises(ValueError, match="a joint action must name solver_0, critic_0, got"):
            env.step(actions)
    for other in (None, 3, ["list"], b"bytes"):
        with pytest.raises(TypeError, match="the action of critic_0 must be a text, got"):
            env.step({"solver_0": "", "critic_0": other})
    for other in (None, 3, "text", ["x", "y"], [("solver_0", ""), ("critic_0", "")]):
        with pytest.raises(TypeError, match="a joint action must be a mapping from agent to text, got"):
            env.step(other)
    assert env.agents, "a refused action leaves the episode as it was"
    env.step({"critic_0": np.str_("y"), "solver_0": np.array("x")})
    assert env.snapshot().history[0].actions == {"solver_0": "x", "critic_0": "y"}
    assert type(env.snapshot().history[0].actions["solver_0"]) is str


def test_options_choose_the_row():
    env = TaskEnv(task())
    for index in (0, 4, np.int64(2)):
        assert env.reset(options={"item": index, "unknown": 1})[0]["solver_0"]["prompt"] == ROWS[index]["prompt"]
    assert env.reset(options={"item": {"prompt": "own", "answer": "1"}})[0]["solver_0"]["prompt"] == "own"
    assert env.step({"solver_0": "", "critic_0": ""})[-1]["solver_0"]["item_index"] == -1
    for wrong in (5, -1, True, "0", 1.0):
        with pytest.raises(ValueError, match=r"options\['item'\] must be a row or a position from 0 to 4"):
            env.reset(options={"item": wrong})


def test_rendering():
    env = TaskEnv(turns(2), render_mode="ansi")
    env.reset(options={"item": 1})
    env.step({"solver_0": "three", "critic_0": "no"})
    text = env.render()
    assert text == env.state()
    order = ["[turn 1, solver_0 reads]\nquestion 1", "[turn 1, critic_0 writes]\nno", "[solver_0 reads]\nhint", "[critic_0 reads]"]
    assert [text.index(part) for part in order] == sorted(text.index(part) for part in order)
    silent = TaskEnv(task())
    silent.reset()
    assert silent.render() is None
    with pytest.raises(ValueError, match="render_mode must be None or 'ansi', got 'human'"):
        TaskEnv(task(), render_mode="human")


# ---- seeds (BC-42) ----


@pytest.mark.parametrize("name", ["turns", "rows without length", "joint", "limited"])
def test_equal_seeds_give_equal_runs_and_a_reset_without_one_goes_on(name):
    def run(env, seed, episodes=3):
        record = []
        for episode in range(episodes):
            record.append(env.reset(seed=seed if episode == 0 else None))
            while env.agents:
                record.append(env.step(dict.fromkeys(env.agents, "try")))
        return record

    for seed in (0, 1, np.int64(7)):
        one, two = ENVS[name](), ENVS[name]()
        assert run(one, seed) == run(two, seed)
        assert run(one, None) == run(two, None), "both go on with the stream"
        assert run(one, seed) == run(ENVS[name](), seed), "a seed starts anew"
    assert run(ENVS[name](), 0) != run(ENVS[name](), 1)


@pytest.mark.parametrize("rows", range(2, 8))
def test_seeds_differ_in_order_however_few_rows(rows):
    def order(seed):
        env = TaskEnv(task(items=[{"prompt": str(i), "answer": ""} for i in range(rows)]))
        return [env.reset(seed=seed if i == 0 else None)[0]["solver_0"]["prompt"] for i in range(rows)]

    orders = [order(seed) for seed in range(rows)]
    assert len({found[0] for found in orders}) == rows, "the first row is the seed's own"
    assert all(sorted(found) == sorted(orders[0]) for found in orders), "each pass has every row once"


def test_passes_have_orders_of_their_own():
    rows = [{"prompt": str(i), "answer": ""} for i in range(20)]
    env = TaskEnv(task(items=rows))
    read = [env.reset(seed=0 if i == 0 else None)[0]["solver_0"]["prompt"] for i in range(60)]
    passes = [read[:20], read[20:40], read[40:]]
    assert all(sorted(one) == sorted(passes[0]) for one in passes)
    assert passes[0] != passes[1] != passes[2] != passes[0]


def test_without_a_seed_runs_differ_and_global_streams_stay():
    torch = pytest.importorskip("torch")

    def first_hints(env):
        env.reset()
        return [env.step(dict.fromkeys(env.agents, "x"))[0]["solver_0"]["prompt"] for _ in range(2)]

    before = (random.getstate(), repr(np.random.get_state()), torch.get_rng_state().tolist())
    assert first_hints(TaskEnv(turns())) != first_hints(TaskEnv(turns()))
    TaskEnv(turns()).reset(seed=0)
    assert (random.getstate(), repr(np.random.get_state()), torch.get_rng_state().tolist()) == before


@pytest.mark.parametrize("seed", [-1, 1.0, "0", [0]])
def test_a_seed_that_is_none_is_refused(seed):
    with pytest.raises((ValueError, TypeError), match=r"seed must (not be negative|be a whole number or None), got"):
        TaskEnv(task()).reset(seed=seed)


def test_each_episode_draws_on_its_own():
    env = TaskEnv(turns())
    hints = []
    for seed in (0, None, None):
        env.reset(seed=seed, options={"item": 0})
        hints.append(env.step(dict.fromkeys(env.agents, "x"))[0]["solver_0"]["prompt"])
    assert len(set(hints)) == 3


def test_chance_is_of_the_state_and_not_of_the_order():
    """The row's position, the episode and the path decide; siblings share their parent's draw."""
    env = TaskEnv(turns())
    env.reset(seed=5)
    start = env.snapshot()
    joint = {"solver_0": "x", "critic_0": "y"}
    hints = [transition.state.observations["solver_0"] for transition in env.branch(start, [joint] * 3)]
    assert len(set(hints)) == 1
    children = [transition.state for transition in env.branch(start, [joint] * 3)]
    deeper = [env.branch(child, [joint])[0].state.observations["solver_0"] for child in children]
    assert len(set(deeper)) == 3, "cousins draw on their own"
    other = env.initial(start.item, (5, 0, 1), start.item_index)
    assert env.branch(other, [joint])[0].state.observations["solver_0"] != hints[0]


# ---- copies ----


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env)), lambda env: cloudpickle.loads(cloudpickle.dumps(env))]
)
@pytest.mark.parametrize("name", ["turns", "rows without length", "all wrappers", "limited"])
def test_copies_in_mid_episode_go_on_alike(name, copied):
    env = ENVS[name]()

    def go_on(env):
        record = [env.step(dict.fromkeys(env.agents, "b")), env.snapshot()]
        for _ in range(7):  # beyond a whole pass over the rows
            record.append(env.reset())
            while env.agents:
                record.append(env.step(dict.fromkeys(env.agents, "c")))
        return record

    for seed in (0, None):
        env.reset(seed=seed)
        env.step(dict.fromkeys(env.agents, "a"))
    twin = copied(env)
    assert go_on(twin) == go_on(env)


def test_copies_of_streamed_data_sets():
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_list(ROWS).to_iterable_dataset()
    env = TaskEnv(turns(items=rows))
    env.reset(seed=0)
    env.reset()
    twin, pickled = copy.deepcopy(env), pickle.loads(pickle.dumps(env))
    read = [[one.reset()[0]["solver_0"]["prompt"] for _ in range(5)] for one in (env, twin, pickled)]
    assert read[0] == read[1] == read[2] == [ROWS[i]["prompt"] for i in (2, 3, 4, 0, 1)]


def test_a_pickle_is_small():
    env = TaskEnv(turns())
    env.reset(seed=0)
    assert len(pickle.dumps(env)) < 6000


def test_snapshots_and_restores():
    env, other = TaskEnv(turns()), TaskEnv(turns())
    env.reset(seed=0)
    env.step(dict.fromkeys(env.agents, "x"))
    kept = env.snapshot()
    observations = {agent: {"prompt": text} for agent, text in kept.observations.items()}
    left = env.step(dict.fromkeys(env.agents, "solved"))
    assert env.agents == []
    for one in (env, other):
        assert one.restore(kept) == observations
        assert one.agents == one.possible_agents
        again = one.step(dict.fromkeys(one.agents, "solved"))
        assert again[:-1] == left[:-1]
    env.restore(env.snapshot())
    assert env.agents == []


@pytest.mark.parametrize("wrap", [lambda env: env, Wrapper, lambda env: TurnLimit(env, 2)])
def test_branch_takes_any_iterable_of_joint_actions_and_nothing_else(wrap):
    env = wrap(TaskEnv(turns()))
    env.reset(seed=0)
    state, action = env.snapshot(), {"solver_0": "x", "critic_0": "y"}
    assert env.branch(state, (action for _ in range(2))) == env.branch(state, [action, action])
    for other in (None, action, "xy", 3):
        with pytest.raises(TypeError, match="joint_actions must be a list of joint actions, got"):
            env.branch(state, other)
    for other in (None, {"turn": 0}):
        with pytest.raises(TypeError, match="expected a State, got"):
            env.branch(other, [action])


def test_a_state_of_another_kind_is_not_restored():
    """Neither does it cost the env the state it has."""
    plain = TaskEnv(turns())
    others = [
        TaskEnv(turns(agents=3, reward=brevity)),
        JointAgent(TaskEnv(turns())),
        TurnLimit(TaskEnv(turns()), 2),
        TransformReward(TurnLimit(TaskEnv(turns()), 2), RewardProcessors.shift(1)),
    ]
    envs = [plain, *others]
    for env in envs:
        env.reset(seed=0)
    for env in envs:
        before = env.snapshot()
        for state in (None, "state", *(other.snapshot() for other in envs if other is not env)):
            with pytest.raises(
                (TypeError, ValueError), match=r"expected a State|is of the agents|come from a wrapper|comes from a wrapper"
            ):
                env.restore(state)
            assert env.snapshot() is before
            assert env.agents == env.possible_agents
        env.restore(before)


# ---- driven by others ----


class Solo(gymnasium.Env):
    """The one agent of an env as a gymnasium environment: no more than a consumer's own adapter would do."""

    def __init__(self, env):
        self.env = env
        (self.agent,) = env.possible_agents
        self.metadata, self.render_mode = env.metadata, None
        self.observation_space, self.action_space = env.observation_space(self.agent), env.action_space(self.agent)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return tuple(part[self.agent] for part in self.env.reset(seed=seed, options=options))

    def step(self, action):
        return tuple(part[self.agent] for part in self.env.step({self.agent: action}))


def solo():
    return Solo(JointAgent(TaskEnv(turns(2))))


def test_gymnasium_checker():
    check_gymnasium_env(solo(), skip_render_check=True, skip_close_check=True)


def test_vector_envs_agree():
    """In this process, in others, with and without shared memory."""

    def played(vector):
        try:
            record = [vector.reset(seed=[0, 1])[0]]
            for _ in range(4):
                observations, rewards, *flags, _ = vector.step(("<solver_0>8</solver_0>", "中"))
                record.append((observations, rewards.tolist(), [flag.tolist() for flag in flags]))
            return record
        finally:
            vector.close()

    expected = played(SyncVectorEnv([solo, solo]))
    assert expected[0]["prompt"][0] != expected[0]["prompt"][1]
    assert expected[1][1] != [0.0, 0.0]
    assert played(AsyncVectorEnv([solo, solo], shared_memory=False)) == expected
    assert played(AsyncVectorEnv([solo, solo])) == expected
