"""An own learner: every agent imitates its part of the team's best joint answer ("best of K", also called rejection sampling).

python examples/own_learner.py

A learner is any object with the members of `learners.Learner`; it inherits from nothing. It never sees a task: it reads env steps.
"""

import argparse

from learners import SamplingConfig, Trainer, TrainingConfig, credit, load_policies, losses, teams_of
from llm_envs import Metrics, RolloutSpec, make


class BestOfK:
    """Makes the best of K joint answers to a state likelier: -1/M sum over M states of the log-likelihood of the best."""

    def __init__(self, policies, config, num_generations=8, states_per_update=8):
        self.policies = policies  # read by the collector, which acts with them
        self.rollout = RolloutSpec(num_generations)  # also read by it: K completions of each agent at every state
        self.states_until_update = states_per_update  # the trainer collects so many states at once
        self._teams = teams_of(policies, config)  # agents that share weights, with an optimiser for each set of weights

    def update(self, steps):
        """One optimiser step on the steps of whole episodes; returns what to log."""
        returns = credit.tree_returns(steps)
        best = [self._best(group, returns) for group in credit.groups(steps)]
        best = [step for step in best if step is not None]
        values = {"reward_mean": credit.mean([mean_of(step.rewards) for step in steps]), "states_learned_from": len(best)}
        for team in self._teams:
            if best:
                values[f"{team.name}/loss"] = self._imitate(team, best)
        return [Metrics(steps[-1].env_step, values)]

    def _best(self, group, returns):
        """The step of highest return among siblings; None if all are equal, for then there is nothing to prefer."""
        worth = {step.env_step: mean_of(returns[step.env_step]) for step in group.steps}
        if max(worth.values()) == min(worth.values()):
            return None
        return max(group.steps, key=lambda step: worth[step.env_step])

    def _imitate(self, team, best):
        """The loss of the team's policy before its optimiser steps on it."""
        completions = [step.completions[agent] for agent in team.agents for step in best]
        total = 0.0
        for rows in team.policy.micro_batches(completions):  # as many as fit in memory; their gradients add up
            scored = team.policy.logprobs([completions[row] for row in rows])  # [B, T], and a mask of the tokens drawn
            loss = -losses.masked_sum(scored.logprobs, scored.mask).sum() / len(completions)
            team.optimizer.backward(loss)
            total += loss.item()
        team.optimizer.step()
        return total

    def flush(self):
        """The end of an epoch. Nothing waits here: each call of `update` is one update."""
        return []

    def state_dict(self):
        """All that an exact resume needs: weights and optimisers."""
        return {team.name: team.state_dict() for team in self._teams}

    def load_state_dict(self, state):
        """Go on from there."""
        for team in self._teams:
            team.load_state_dict(state[team.name])


def mean_of(by_agent):
    """The mean over a mapping's values."""
    return credit.mean(list(by_agent.values()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2, help="passes over 64 items")
    epochs = parser.parse_args().epochs

    env = make("matching-v0")
    config = TrainingConfig(num_train_epochs=epochs, agent_learning_rate=1e-3, eval_interval=0, eval_num_samples=16)
    policies = load_policies(agent_model="tiny", names=env.possible_agents, sampling=SamplingConfig(max_new_tokens=8))
    trainer = Trainer(env, BestOfK(policies, config), config, progress=False)
    before = trainer.evaluate()["eval/turn_1/reward_mean"]
    trainer.train()
    after = trainer.evaluate()["eval/turn_1/reward_mean"]
    print(f"agreement in evaluation: {before:.2f} before, {after:.2f} after {trainer.numbering.env_step} env steps")
