"""An own learner: every agent imitates its part of the team's best joint answer ("best of K", also called rejection sampling).

python examples/own_learner.py

A learner is any object with the members of `learners.Learner`; it inherits from nothing. It never sees a task: it reads env steps.
"""

import argparse
import math
from dataclasses import asdict

from learners import SamplingConfig, Trainer, TrainingConfig, credit, load_policies, losses, teams_of
from learners.optim import mini_batch, step_together
from learners.teams import check_same_teams
from llm_envs import Completion, Metrics, RolloutSpec, make


class BestOfK:
    """Makes the best of K joint answers to a state likelier: -1/M sum over M states of the log-likelihood of the best."""

    def __init__(self, policies, config, num_generations=8, states_per_update=8):
        self.policies = policies  # read by the collector, which acts with them
        self.rollout = RolloutSpec(num_generations)  # also read by it: K completions of each agent at every state
        self._states_per_update = states_per_update
        self._teams = teams_of(policies, config)  # agents that share weights, with an optimiser for each set of weights
        self._waiting = []  # a record of each state since the last update

    @property
    def states_until_update(self):
        """The trainer collects so many states at once, since they are drawn from the same weights."""
        return max(0, self._states_per_update - len(self._waiting))

    def update(self, steps):
        """An optimiser step each time enough states have come; returns what to log."""
        metrics, returns = [], credit.tree_returns(steps)
        self._waiting += [self._record(group, returns) for group in credit.groups(steps)]
        while len(self._waiting) >= self._states_per_update:
            metrics += self._learn(self._states_per_update)
        return metrics

    def _record(self, group, returns):
        """What is kept of a state, in plain values: the best completions, none if all are equal, for then there is no best."""
        worth = [credit.mean(list(returns[step.env_step].values())) for step in group.steps]  # over the agents
        if not all(map(math.isfinite, worth)):
            raise FloatingPointError(f"the returns of state {group.state_id} are {worth}")
        best = group.steps[worth.index(max(worth))].completions if max(worth) > min(worth) else {}
        return {"env_step": group.env_step, "return": credit.mean(worth), "best": {a: asdict(best[a]) for a in best}}

    def flush(self):
        """An optimiser step on the states that wait, which are fewer at the end of an epoch."""
        return self._learn(len(self._waiting)) if self._waiting else []

    def _learn(self, count):
        """An optimiser step on so many states. They wait until it is made: whatever stops it, the next call does it again."""
        records = self._waiting[:count]
        best = [record["best"] for record in records if record["best"]]
        values = {"return_mean": credit.mean([record["return"] for record in records]), "states_learned_from": len(best)}
        optimizers = [team.optimizer for team in self._teams if best]
        with mini_batch(optimizers):  # what stops it drops all gradients, and no agent steps without the others
            values |= {f"{team.name}/loss": self._imitate(team, best) for team in self._teams if best}
        step_together(optimizers)
        self._waiting = self._waiting[count:]
        return [Metrics(records[-1]["env_step"], values)]

    def _imitate(self, team, best):
        """The loss of the team's policy, its gradient added to the weights'."""
        completions = [Completion(**completions[agent]) for agent in team.agents for completions in best]
        total = 0.0
        for rows in team.policy.micro_batches(completions):  # as many as fit in memory; their gradients add up
            scored = team.policy.logprobs([completions[row] for row in rows])  # [B, T], and a mask of the tokens drawn
            loss = -losses.masked_sum(scored.logprobs, scored.mask).sum() / len(completions)
            team.optimizer.backward(loss)
            total += loss.item()
        return total

    def state_dict(self):
        """All that an exact resume needs: weights, optimisers and what waits."""
        return {"teams": {team.name: team.state_dict() for team in self._teams}, "waiting": list(self._waiting)}

    def load_state_dict(self, state):
        """Go on from there, or refuse what is of another team before anything is changed."""
        check_same_teams(self._teams, state["teams"])
        for team in self._teams:
            team.load_state_dict(state["teams"][team.name])
        self._waiting = list(state["waiting"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2, help="passes over 64 items")
    env = make("matching-v0")
    epochs = parser.parse_args().epochs
    config = TrainingConfig(num_train_epochs=epochs, agent_learning_rate=1e-3, eval_interval=0, eval_num_samples=16)
    policies = load_policies(agent_model="tiny", names=env.possible_agents, sampling=SamplingConfig(max_new_tokens=8))
    trainer = Trainer(env, BestOfK(policies, config), config, progress=False)
    before = trainer.evaluate()["eval/turn_1/reward_mean"]
    trainer.train()
    after = trainer.evaluate()["eval/turn_1/reward_mean"]
    print(f"agreement in evaluation: {before:.2f} before, {after:.2f} after {trainer.numbering.env_step} env steps")
