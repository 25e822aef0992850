"""Records `comlrl_tree.json`: what comlrl 1.4.3 makes of scripted completions. Run once, in an environment of its own.

    python -m venv .peer && .peer/bin/pip install comlrl==1.4.3 torch==2.13.0
    .peer/bin/python tests/golden/record_comlrl_tree.py

Two agents draw three completions at every node of a tree of three turns. The trainer's own code forms joint actions, asks for
rewards, decides which nodes to expand, computes returns, credits completions and computes advantages; only the generation of text
is scripted, and the weights are a row of zeros from whose gradient the advantages are read.

Credits come from joint mode `cross`. The return of every joint action, which that mode only shows summed, comes from a second run
of the same script in mode `crossed`, which hands the returns on as they are.
"""

import hashlib
import json
import platform
import random
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import torch
from comlrl.trainers.reinforce import MAGRPOConfig, MAGRPOTrainer

HERE = Path(__file__)
AGENTS, SAMPLES, TURNS = 2, 3, 3
SEED = 7  # with it the threshold stops some nodes of turn 2 in both modes, and not the first node
CASES = (("aligned", None), ("aligned", 0.2), ("cross", None), ("cross", 0.2))
ROOT = "node"


def text_of(prompt, agent, sample):
    """A text that says where it was written."""
    return f"{prompt} | agent {agent} sample {sample}"


def place_of(text):
    """The prompt and sample number that `text_of` put in."""
    prompt, _, writer = text.rpartition(" | ")
    return prompt, int(writer.split()[-1])


def scripted_rewards(prompt, count):
    """Rewards of a node's joint actions: two decimals around 0; at one node in six all equal."""
    rng = random.Random(f"{SEED} {prompt}")
    if rng.random() < 1 / 6:
        return [0.35] * count
    return [round(rng.gauss(0, 1), 2) + 0.0 for _ in range(count)]  # no -0.0


class Probe(torch.nn.Module):
    """An agent whose log-probability of token v is log softmax(θ)_v everywhere, θ = 0."""

    def __init__(self):
        super().__init__()
        self.theta = torch.nn.Parameter(torch.zeros(SAMPLES + 1))

    def forward(self, input_ids, attention_mask, use_cache):
        return SimpleNamespace(logits=self.theta.expand(*input_ids.shape, -1))


class RecordingTrainer(MAGRPOTrainer):
    """The trainer with scripted generation, that notes its samples in place of training on them."""

    def record(self, joint_mode):
        self.order, self.samples, self.asked = [], {}, {}
        self.args.joint_mode = joint_mode
        self.env_step = 0
        self.verbose = False
        self.train()
        return self

    def joint_index(self, ks):
        """Position of a joint action among its siblings."""
        return ks[0] if self.args.joint_mode == "aligned" else ks[0] * SAMPLES + ks[1]

    def scripted_reward(self, first, second):
        (prompt, i), (same, j) = place_of(first[0]), place_of(second[0])
        assert prompt == same
        count = SAMPLES if self.args.joint_mode == "aligned" else SAMPLES**AGENTS
        reward = scripted_rewards(prompt, count)[self.joint_index((i, j))]
        self.asked.setdefault(prompt, []).append(((i, j), reward))
        return [reward]

    def scripted_transition(self, *, agent_completions, num_agents, **_):
        places = [place_of(text) for text in agent_completions]
        return [f"{places[0][0]} {self.joint_index([k for _, k in places])}"] * num_agents

    def _generate_completions_with_external_prompts(self, agent, batch_items, agent_idx, external_prompts=None, **_):
        prompt = batch_items[0]["prompt"] if external_prompts is None else external_prompts
        if prompt not in self.order:
            self.order.append(prompt)
        return {
            "prompts": [prompt],
            "completions": [[text_of(prompt, agent_idx, k) for k in range(SAMPLES)]],
            # The number of the node stands for its prompt; of two tokens the trainer scores the first.
            "prompt_input_ids": torch.tensor([[self.order.index(prompt)]]),
            "completion_input_ids": [[torch.tensor([k, SAMPLES]) for k in range(SAMPLES)]],
        }

    def _update_from_samples(self, agent_idx, samples):
        for sample in samples:
            prompt = self.order[int(sample.completions_data["prompt_input_ids"][0, 0])]
            self.samples[prompt, agent_idx] = sample

    def advantages(self, agent, prompt):
        """Of one agent's completions, by mode and normalised, read from the gradient of the trainer's loss.

        L = −1/K Σ_k A_k log softmax(θ)_k, so at θ = 0 with V tokens ∂L/∂θ_v = −(A_v − ΣA/V)/K, and for the token that nobody draws
        ΣA/(V K): their difference is A_v/K.
        """
        sample = self.samples[prompt, agent]
        found = {}
        for name, mode, normalized in [(m, m, False) for m in ("mean", "raw", "rloo", "max")] + [("normalized", "mean", True)]:
            self.advantage_mode, self.args.advantage_normalization = mode, normalized
            probe = self.agents[agent]
            probe.zero_grad()
            self._compute_loss_with_gradients(probe, sample.completions_data, sample.returns).backward()
            slope = probe.theta.grad.double()
            found[name] = [float(f"{SAMPLES * (slope[-1] - slope[k]).item():.7g}") for k in range(SAMPLES)]
        return found


def trainer_for(threshold):
    def reward(first, second):
        return trainer.scripted_reward(first, second)

    def transition(**arguments):
        return trainer.scripted_transition(**arguments)

    trainer = RecordingTrainer(
        agents=[Probe() for _ in range(AGENTS)],
        num_agents=AGENTS,
        tokenizer=SimpleNamespace(pad_token="p", pad_token_id=0),
        train_dataset=[{"prompt": ROOT}],
        reward_func=reward,
        external_transition=transition,
        args=MAGRPOConfig(
            num_train_epochs=1,
            num_turns=TURNS,
            num_generations=SAMPLES,
            early_termination_threshold=threshold,
            external_prompt_passthrough=True,
            eval_interval=0,
            rollout_buffer_size=10**6,
        ),
    )
    return trainer


def record_case(joint_mode, threshold):
    trainer = trainer_for(threshold).record("aligned" if joint_mode == "aligned" else "crossed")
    returns = {prompt: trainer.samples[prompt, 0].returns for prompt in trainer.order}
    trainer.record(joint_mode)
    nodes = []
    for prompt in trainer.order:
        samples = [trainer.samples[prompt, agent] for agent in range(AGENTS)]
        advantages = [trainer.advantages(agent, prompt) for agent in range(AGENTS)]
        nodes.append(
            {
                "path": [int(part) for part in prompt.split()[1:]],
                "turn": samples[0].turn_idx + 1,
                "env_step": samples[0].node_env_step,
                "prompt": prompt,
                "completions": [[text_of(prompt, agent, k) for k in range(SAMPLES)] for agent in range(AGENTS)],
                "joint_actions": [ks for ks, _ in trainer.asked[prompt]],
                "expanded": f"{prompt} 0" in trainer.order,
                "rewards": [reward for _, reward in trainer.asked[prompt]],
                "returns": returns[prompt],
                "mean_return": samples[0].node_mean_return,
                "credit": [sample.returns for sample in samples],
                "advantages": {name: [of_agent[name] for of_agent in advantages] for name in advantages[0]},
            }
        )
    return {
        "joint_mode": joint_mode,
        "early_termination_threshold": threshold,
        "env_steps": trainer.env_step,
        "nodes": nodes,
    }


def main():
    torch.set_num_threads(1)
    source = {
        "package": "comlrl",
        "version": version("comlrl"),
        "torch": version("torch"),
        "python": platform.python_version(),
        "script": HERE.name,
        "script_sha256": hashlib.sha256(HERE.read_bytes()).hexdigest(),
    }
    header = {"source": source, "num_agents": AGENTS, "num_generations": SAMPLES, "num_turns": TURNS}
    cases = [record_case(*case) for case in CASES]
    # One node a line: the file can be read, and a change shows in a diff.
    lines = []
    for case in cases:
        nodes = ",\n".join(json.dumps(node) for node in case["nodes"])
        lines.append(f'{json.dumps({k: v for k, v in case.items() if k != "nodes"})[:-1]}, "nodes": [\n{nodes}\n]}}')
    text = f'{json.dumps(header)[:-1]}, "cases": [\n' + ",\n".join(lines) + "\n]}\n"
    json.loads(text)
    HERE.with_name("comlrl_tree.json").write_text(text)


if __name__ == "__main__":
    main()
