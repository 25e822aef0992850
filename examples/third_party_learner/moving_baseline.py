"""REINFORCE with a moving baseline: each agent's return is compared with a running mean of its earlier ones."""

import math
from dataclasses import dataclass
from itertools import groupby

import torch

from learners import TeamTrainer, TrainingConfig, credit, losses, teams_of
from learners.config import require_int, require_number
from learners.optim import flush_together, mini_batch, step_together
from learners.teams import check_same_teams
from llm_envs import Metrics, RolloutSpec


@dataclass(frozen=True, kw_only=True)
class MovingBaselineConfig(TrainingConfig):
    """Options of the learner, beside those of `TrainingConfig`: `--learner.NAME` on the command line, with this help.

    Attributes:
        num_generations: K, completions each agent draws at every state.
        baseline_decay: weight of the earlier returns in the running mean.
    """

    num_generations: int = 4
    baseline_decay: float = 0.9

    def __post_init__(self):
        super().__post_init__()
        require_int("num_generations", self.num_generations, 1)
        require_number("baseline_decay", self.baseline_decay, at_least=0, at_most=1)


class MovingBaseline:
    """Minimises -(R - b) sum log pi of each completion, b being the agent's running mean return, after every episode."""

    config_class = MovingBaselineConfig
    states_until_update = 1  # an update after every episode: the trainer collects one at a time

    def __init__(self, policies, config=None, *, executor=None):  # an executor trains agents at once; this learner does not
        self.policies = dict(policies)
        self.config = self.config_class() if config is None else config
        self.rollout = RolloutSpec(self.config.num_generations)
        self._teams = teams_of(self.policies, self.config)
        self._optimizers = [team.optimizer for team in self._teams]
        self._baselines = dict.fromkeys(self.policies, 0.0)

    def update(self, steps):
        """An optimiser step on each episode; returns what to log."""
        return [self._learn(list(episode)) for _, episode in groupby(steps, key=lambda step: step.episode)]

    def _learn(self, steps):
        returns = credit.tree_returns(steps, self.config.discount)
        means = {agent: credit.mean([returns[step.env_step][agent] for step in steps]) for agent in self.policies}
        if not all(map(math.isfinite, means.values())):
            raise FloatingPointError(f"the mean returns of episode {steps[0].episode} are {means}")
        values = {f"{agent}/baseline": self._baselines[agent] for agent in self.policies}
        with mini_batch(self._optimizers):  # all gradients, then all steps: whatever fails changes no weights
            values |= {f"{team.name}/loss": self._accumulate(team, steps, returns) for team in self._teams}
        step_together(self._optimizers)
        decay = self.config.baseline_decay
        self._baselines = {agent: decay * old + (1 - decay) * means[agent] for agent, old in self._baselines.items()}
        turn_1 = [credit.mean(list(step.rewards.values())) for step in steps if step.turn == 1]
        return Metrics(steps[-1].env_step, {"turn_1/reward_mean": credit.mean(turn_1), **values})

    def _accumulate(self, team, steps, returns):
        """Add the gradient of the team's loss; returns the loss."""
        pairs = [(step.completions[agent], returns[step.env_step][agent], agent) for agent in team.agents for step in steps]
        completions = [completion for completion, _, _ in pairs]
        advantages = torch.tensor([value - self._baselines[agent] for _, value, agent in pairs], dtype=torch.float64)
        total = 0.0
        for rows in team.policy.micro_batches(completions):  # as many as fit in memory; their gradients add up
            scored, weights = team.policy.logprobs([completions[row] for row in rows]), torch.full((len(rows),), 1 / len(pairs))
            loss = losses.policy_gradient_loss(scored.logprobs, scored.mask, advantages[rows], weights)
            team.optimizer.backward(loss)
            total += loss.item()
        return total

    def flush(self):
        """No states wait at the end of an epoch, but gradients may, with `gradient_accumulation_steps`."""
        flush_together(self._optimizers)
        return []

    def state_dict(self):
        """All that an exact resume needs."""
        return {"teams": {team.name: team.state_dict() for team in self._teams}, "baselines": dict(self._baselines)}

    def load_state_dict(self, state):
        """Go on from there, or refuse what is of another team before anything is changed."""
        check_same_teams(self._teams, state["teams"])
        for team in self._teams:
            team.load_state_dict(state["teams"][team.name])
        self._baselines = dict(state["baselines"])


class MovingBaselineTrainer(TeamTrainer):
    """What the entry point names: builds the team of `--model` on `--env` and trains it."""

    learner_class = MovingBaseline
