"""`check_env`: every rule that other code relies on, checked one after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pettingzoo import ParallelEnv

from llm_envs.env import BranchingEnv
from llm_envs.testing import branching, face
from llm_envs.testing.subject import Subject


class ConformanceError(AssertionError):
    """A task or an environment breaks a rule; the message says which, what was found and who breaks."""


@dataclass(frozen=True)
class Rule:
    """Something that has to hold.

    Attributes:
        check: raises if it does not; its first line states the rule.
        breaks: who goes wrong without it.
        branching: whether it is about `initial` and `branch`, which only a `BranchingEnv` has.
    """

    check: Callable[[Subject], None]
    breaks: str
    branching: bool = False

    @property
    def statement(self) -> str:
        """The rule in words."""
        return (self.check.__doc__ or "").strip().splitlines()[0]


RULES = (
    Rule(face.direct_base, "skrl's wrap_env, which looks for ParallelEnv among the direct bases"),
    Rule(face.names, "PettingZoo's api_test; TorchRL, which groups agents by role; AgileRL and skrl read them before a reset"),
    Rule(face.metadata, "PettingZoo's turn-based conversion; SuperSuit, which reads render_mode"),
    Rule(face.attributes, "SuperSuit and skrl take num_envs for a vector env and device for torch's; Tianshou calls seed()"),
    Rule(face.stable_spaces, "parallel_api_test; skrl, which reads the dicts and unwrapped"),
    Rule(face.equal_spaces, "SuperSuit, SB3 and Tianshou, which assert it; TorchRL stacks agents of a role"),
    Rule(face.agents_at_start, "SuperSuit, which asserts that the lists are equal; everyone who changes env.agents"),
    Rule(
        face.all_in_order,
        "TorchRL ('Dead agents found'), SuperSuit, RLlib and the turn-based conversion, at the last step above all",
    ),
    Rule(face.agents_at_end, "SuperSuit ('varying numbers of agents'), TorchRL, RLlib's __all__, loops on `while env.agents`"),
    Rule(face.ends_in_time, "every loop on `while env.agents`"),
    Rule(face.step_after_end, "code that steps once too often would train on a turn that never was"),
    Rule(face.observations_belong, "gymnasium's checker and every library that allocates from the space"),
    Rule(face.finite_rewards, "SB3 and RLlib go to NaN without an error"),
    Rule(face.infos_of_resets, "TorchRL and BenchMARL, which build their specs from reset infos"),
    Rule(face.new_objects, "gymnasium's check_returned_data_not_reused; RLlib and SuperSuit write into infos"),
    Rule(face.state_of_env, "centralised critics: TorchRL, BenchMARL, skrl"),
    Rule(face.whole_episodes_repeat, "reproducible runs; PettingZoo's own seed test plays one step only"),
    Rule(face.reset_again, "reproducible evaluation"),
    Rule(face.global_streams, "whoever seeds a run: two environments in a process would share a stream"),
    Rule(face.copies, "vector environments, remote workers, tree search"),
    Rule(face.foreign_actions, "RLlib, which hands over np.str_, and AgileRL, which hands over arrays"),
    Rule(face.api_test, "everyone who trusts PettingZoo's test"),
    Rule(face.seed_test, "everyone who trusts PettingZoo's test"),
    Rule(face.aec_test, "turn-based libraries: Tianshou, RLlib's AEC wrapper"),
    Rule(branching.step_is_branch, "a policy trained on trees would be used in another environment than it was trained in", True),
    Rule(branching.restore_repeats, "tree search, replay", True),
    Rule(branching.siblings_independent, "the collector, which takes all joint actions of a state in one call", True),
    Rule(branching.states_unchanged, "trees: siblings would start from different states", True),
    Rule(branching.states_copy, "checkpoints and remote workers", True),
    Rule(branching.keys_are_paths, "random streams: two branches would draw the same", True),
    Rule(branching.ends_are_ends, "the collector, which expands whatever is no end", True),
    Rule(branching.global_text, "centralised critics", True),
)
"""What `check_env` checks, in order."""


def check_env(env: ParallelEnv | Callable[[], ParallelEnv], *, episodes: int = 3) -> tuple[str, ...]:
    """Check an environment against every rule; returns the rules that hold, in words.

    Args:
        env: an environment (copied for each rule, never touched), or a function that makes a fresh one. Those about `initial` and
            `branch` are checked if it is a `BranchingEnv`.
        episodes: that longer checks play; random actions, odd texts and the task's reference solution take turns.

    Raises:
        ConformanceError: for the first rule that does not hold, saying what was found and who breaks without it.
    """
    subject = Subject(env, episodes)
    try:
        made = subject.fresh()
    except Exception as error:
        raise ConformanceError(f"no environment to check: {type(error).__name__}: {error}") from error
    held = []
    for rule in RULES:
        if rule.branching and not isinstance(made, BranchingEnv):
            continue
        try:
            rule.check(subject)
        except Exception as error:
            found = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
            raise ConformanceError(f"{rule.statement} But: {found}. Who breaks without it: {rule.breaks}.") from error
        held.append(rule.statement)
    return tuple(held)
