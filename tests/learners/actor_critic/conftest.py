"""Critics on tiny models for the tests of `learners.actor_critic`."""

from __future__ import annotations

import pytest
from team import AGENTS, TEMPERATURE, values_fixed_at

from learners.actor_critic.critic import Critic, ValueHead
from learners.sampling import SamplingConfig


@pytest.fixture
def make_critic(tiny_model, byte_tokenizer):
    """`make_critic(arch="qwen2", seed=0, hidden_dim=None, double=False, tokenizer=None, critic={Critic options}, **tiny_model)`.

    The model has one layer; the head's weights are fifty times the usual, so that values differ visibly between texts.
    """

    def make(
        arch="qwen2", seed=0, *, hidden_dim=None, double=False, tokenizer=None, critic=None, hidden=32, layers=1, **model
    ) -> Critic:
        head = ValueHead(hidden, hidden_dim, seed=seed)
        for parameter in head.parameters():
            parameter.data.mul_(50)
        body = tiny_model(arch, 100 + seed, hidden=hidden, layers=layers, **model)
        if double:
            body.double()
            head.double()
        return Critic(body, head, tokenizer or byte_tokenizer, **(critic or {}))

    return make


@pytest.fixture
def make_policies(tiny_policy):
    """`make_policies(shared=False, double=False, **tiny_policy options)`: one for each agent, of one layer, equal at each call."""

    def make(shared=False, double=False, arch="qwen2", layers=1, **options) -> dict:
        sampling = SamplingConfig(temperature=TEMPERATURE, max_new_tokens=6)
        policies = [
            tiny_policy(arch, seed, sampling=sampling, layers=layers, **options) for seed in range(1 if shared else len(AGENTS))
        ]
        if double:
            for policy in policies:
                policy.model.double()
        return {agent: policies[0 if shared else i] for i, agent in enumerate(AGENTS)}

    return make


@pytest.fixture
def make_critics(make_critic):
    """`make_critics(policies, separate=True, **make_critic options)`: a critic for each agent; agents with one policy share it."""

    def make(policies, separate=True, double=False, hidden=32, **options) -> dict[str, Critic]:
        critics: dict[int, Critic] = {}
        for seed, policy in enumerate(policies.values()):
            if id(policy) in critics:
                continue
            critic = make_critic(seed=seed, double=double, hidden=hidden, **options)
            if not separate:
                limit = {"micro_batch_tokens": critic.micro_batch_tokens}
                critic = Critic(policy.model, critic.head, policy.tokenizer, owns_model=False, **limit)
            critics[id(policy)] = critic
        return {agent: critics[id(policy)] for agent, policy in policies.items()}

    return make


@pytest.fixture
def fixed_critics(make_critics):
    """`fixed_critics(policies, value=0.5, separate=True)`: critics that say the same of everything."""
    return lambda policies, value=0.5, separate=True: {
        agent: values_fixed_at(critic, value) for agent, critic in make_critics(policies, separate).items()
    }
