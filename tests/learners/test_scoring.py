"""Guards the log-probabilities that are trained on: values and gradients, from logits and hidden states, plain and truncated."""

from __future__ import annotations

import math

import pytest
import torch

from learners import scoring
from learners.sampling import SamplingConfig
from learners.scoring import head_logprobs, token_logprobs

CONFIGS = [
    SamplingConfig(),
    SamplingConfig(temperature=0.6),
    SamplingConfig(temperature=1.3, top_k=5),
    SamplingConfig(temperature=0.8, top_p=0.7),
    SamplingConfig(temperature=0.6, top_p=0.6, top_k=50),
]


def reference(logits: torch.Tensor, tokens: torch.Tensor, sampling: SamplingConfig) -> torch.Tensor:
    """By sorting, in double precision, with autograd: the truncated support as a constant, the token always inside."""
    scaled = logits.double() / sampling.temperature
    result = []
    for row, token in zip(scaled, tokens.tolist(), strict=True):
        inside = torch.ones_like(row, dtype=torch.bool)
        if sampling.top_k:
            inside = row >= row.detach().sort(descending=True).values[min(sampling.top_k, len(row)) - 1]
        if sampling.top_p < 1:
            values, order = row.detach().masked_fill(~inside, -math.inf).softmax(-1).sort(descending=True)
            inside[order[values.cumsum(-1) - values >= sampling.top_p]] = False
        inside[token] = True
        result.append(row[token] - row[inside].logsumexp(-1))
    return torch.stack(result)


class TestTemperature:
    """BC-10: sampled at T = ½, scored at T = ½."""

    SAMPLING = SamplingConfig(temperature=0.5)

    def test_golden_values(self):
        """log softmax(4, 2, 0): the normaliser is 4 + ln(1 + e⁻² + e⁻⁴) = 4.142932."""
        scores = token_logprobs(torch.tensor([[2.0, 1.0, 0.0]]).expand(3, 3), torch.arange(3), self.SAMPLING)
        assert scores.tolist() == pytest.approx([-0.142932, -2.142932, -4.142932], abs=1e-5)

    def test_golden_gradient(self):
        """(onehot − p)/T = 2 · (1 − .866814, −.117310, −.015876)."""
        logits = torch.tensor([[2.0, 1.0, 0.0]], requires_grad=True)
        token_logprobs(logits, torch.tensor([0]), self.SAMPLING).sum().backward()
        assert logits.grad is not None
        assert logits.grad[0].tolist() == pytest.approx([0.266373, -0.234621, -0.031752], abs=1e-5)

    def test_greedy_is_refused(self):
        with pytest.raises(ValueError, match="temperature 0"):
            token_logprobs(torch.zeros(1, 3), torch.tensor([0]), SamplingConfig(temperature=0))


@pytest.mark.parametrize("sampling", CONFIGS, ids=str)
class TestAgainstReference:
    @pytest.fixture
    def case(self):
        generator = torch.Generator().manual_seed(1)
        hidden = torch.randn(9, 6, generator=generator, requires_grad=True)
        weight = torch.randn(40, 6, generator=generator, requires_grad=True)
        tokens = torch.randint(0, 40, (9,), generator=generator)
        upstream = torch.randn(9, generator=generator)
        return hidden, weight, tokens, upstream

    def gradients(self, scores, case):
        hidden, weight, _, upstream = case
        return torch.autograd.grad((scores.double() * upstream).sum(), (hidden, weight))

    def test_logits(self, case, sampling):
        hidden, weight, tokens, _ = case
        expected = reference(hidden @ weight.T, tokens, sampling)
        got = token_logprobs(hidden @ weight.T, tokens, sampling)
        assert torch.allclose(got.double(), expected, atol=1e-5)
        for a, b in zip(self.gradients(got, case), self.gradients(expected, case), strict=True):
            assert torch.allclose(a, b, atol=1e-5)

    @pytest.mark.parametrize("kept", [True, False], ids=["kept", "recomputed"])
    def test_hidden_states_in_blocks(self, case, sampling, kept, monkeypatch):
        monkeypatch.setattr(scoring, "_BLOCK_LOGITS", 4 * 40)  # 9 rows in blocks of 4, 4 and 1
        monkeypatch.setattr(scoring, "_KEPT_PROBABILITIES", 10**9 if kept else 0)
        hidden, weight, tokens, _ = case
        expected = reference(hidden @ weight.T, tokens, sampling)
        got = head_logprobs(hidden, weight, tokens, sampling)
        assert torch.allclose(got.double(), expected, atol=1e-5)
        for a, b in zip(self.gradients(got, case), self.gradients(expected, case), strict=True):
            assert torch.allclose(a, b, atol=1e-5)

    def test_finite_differences(self, case, sampling):
        """In single precision, so with a large step: the log-probability is smooth as long as the support stays."""
        hidden, weight, tokens, _ = case
        logits = (hidden @ weight.T).detach().requires_grad_()
        token_logprobs(logits, tokens, sampling)[0].backward()
        assert logits.grad is not None
        for column in (int(tokens[0]), int(logits[0].argmax())):
            nudge = torch.zeros_like(logits)
            nudge[0, column] = 1e-2
            with torch.no_grad():
                above, below = (token_logprobs(logits + sign * nudge, tokens, sampling)[0].item() for sign in (1, -1))
            assert (above - below) / 2e-2 == pytest.approx(logits.grad[0, column].item(), abs=2e-3)


class TestEdges:
    def test_a_sampled_token_outside_the_support_is_added_to_it(self):
        """Logits (3, 2, 1) with top-k 1: the support of token 2 is {0, 2}, its log-probability 1 − ln(e³ + e¹) = −2.126928."""
        scores = token_logprobs(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([2]), SamplingConfig(top_k=1))
        assert scores.item() == pytest.approx(-2.126928, abs=1e-5)

    def test_a_probability_that_underflows_has_a_finite_logarithm(self):
        logits = torch.tensor([[500.0, 0.0]], requires_grad=True)
        scores = token_logprobs(logits, torch.tensor([1]), SamplingConfig())
        assert scores.item() == pytest.approx(-500.0)
        scores.sum().backward()
        assert logits.grad is not None
        assert logits.grad.tolist() == [[-1.0, 1.0]]

    def test_the_backward_pass_can_be_repeated(self):
        hidden, weight = torch.randn(3, 4, requires_grad=True), torch.randn(7, 4)
        scores = head_logprobs(hidden, weight, torch.tensor([0, 1, 2]), SamplingConfig()).sum()
        first = torch.autograd.grad(scores, hidden, retain_graph=True)[0]
        assert torch.equal(torch.autograd.grad(scores, hidden)[0], first)

    def test_half_precision_is_scored_in_single(self):
        logits = torch.randn(4, 30, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16).requires_grad_()
        scores = token_logprobs(logits, torch.arange(4), SamplingConfig())
        assert scores.dtype == torch.float32
        assert torch.allclose(scores, logits.float().log_softmax(-1)[torch.arange(4), torch.arange(4)], atol=1e-6)
        scores.sum().backward()
        assert logits.grad is not None
        assert logits.grad.dtype == torch.bfloat16
