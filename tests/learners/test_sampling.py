"""Guards the sampling distribution (temperature, then top-k, then top-p), the draws from it, and the loop that ends sequences."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.sampling import SamplingConfig, _first_above, decode, draw, inverse_cdf, kept_logits


def naive_distribution(logits: list[float], sampling: SamplingConfig) -> list[float]:
    """Probabilities by sorting and looping: the reference for everything here."""
    scaled = [value / sampling.temperature for value in logits]
    order = sorted(scaled, reverse=True)
    kept = [True] * len(scaled)
    if sampling.top_k:
        last = order[min(sampling.top_k, len(order)) - 1]
        kept = [value >= last for value in scaled]
    weights = [math.exp(value - order[0]) if keep else 0.0 for value, keep in zip(scaled, kept, strict=True)]
    if sampling.top_p < 1:
        total, before, last = sum(weights), 0.0, order[0]
        for value, weight in sorted(zip(scaled, weights, strict=True), reverse=True):
            if weight == 0 or before >= sampling.top_p * total:
                break
            before, last = before + weight, value
        weights = [weight if value >= last else 0.0 for value, weight in zip(scaled, weights, strict=True)]
    return [weight / sum(weights) for weight in weights]


def probabilities(logits: torch.Tensor, sampling: SamplingConfig) -> torch.Tensor:
    """Of every token [N, V]."""
    kept = kept_logits(logits, sampling)
    shares = kept.values.softmax(-1)
    return shares if kept.tokens is None else torch.zeros_like(logits, dtype=shares.dtype).scatter_(-1, kept.tokens, shares)


def support(logits: torch.Tensor, **options) -> list[list[bool]]:
    return (probabilities(logits, SamplingConfig(**options)) > 0).tolist()


class TestConfig:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"temperature": -0.1}, "temperature.*-0.1"),
            ({"temperature": math.inf}, "temperature.*inf"),
            ({"temperature": math.nan}, "temperature.*nan"),
            ({"top_p": 0.0}, r"top_p.*0\.0"),
            ({"top_p": 1.1}, r"top_p.*1\.1"),
            ({"top_k": -1}, "top_k.*-1"),
            ({"top_k": 2.5}, r"top_k.*2\.5"),
            ({"max_new_tokens": -1}, "max_new_tokens.*-1"),
            ({"max_new_tokens": 1.5}, r"max_new_tokens.*1\.5"),
        ],
    )
    def test_a_value_out_of_range_is_named(self, options, message):
        with pytest.raises(ValueError, match=message):
            SamplingConfig(**options)

    @pytest.mark.parametrize("top_k", [None, 0])
    def test_no_top_k_truncates_nothing(self, top_k):
        config = SamplingConfig(top_k=top_k)
        assert not config.truncated
        # The reference system left a top-k of 50 in force here: all of 500 tokens must stay within reach.
        assert (probabilities(torch.zeros(1, 500), config) > 0).all()


class TestSupport:
    def test_top_k_then_top_p(self):
        """p = (.4, .3, .2, .1): top-k 3 leaves (.444, .333, .222); the first two reach .7, but not .8 (.777)."""
        logits = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log()
        assert support(logits, top_k=3, top_p=0.7) == [[True, True, False, False]]
        assert support(logits, top_k=3, top_p=0.8) == [[True, True, True, False]]
        # Without top-k first, .4 + .3 = .7 does not reach .75 and the third token is needed.
        assert support(logits, top_p=0.75) == [[True, True, True, False]]
        assert support(logits, top_k=3, top_p=0.75) == [[True, True, False, False]]

    def test_temperature_comes_first(self):
        """At temperature 2 the probabilities .64, .32, .04 become ∝ .8, .566, .2: .511 alone no longer reaches .6."""
        logits = torch.tensor([[0.64, 0.32, 0.04]]).log()
        assert support(logits, temperature=1.0, top_p=0.6) == [[True, False, False]]
        assert support(logits, temperature=2.0, top_p=0.6) == [[True, True, False]]

    def test_the_most_probable_token_always_stays(self):
        assert support(torch.tensor([[0.0, 5.0]]), top_p=1e-6) == [[False, True]]

    def test_exactly_k_of_tied_tokens_stay(self):
        assert sum(support(torch.tensor([[1.0, 1.0, 1.0, 0.0]]), top_k=2)[0]) == 2

    @pytest.mark.parametrize(("size", "expected"), [(1000, 294), (6000, 1758)], ids=["sorted", "in bins"])
    def test_the_nucleus_of_a_flat_distribution(self, size, expected):
        """p(i) ∝ n − i of n tokens: the first m have ½ of the probability from (2n + 1) m − m² ≥ n (n + 1)/2 on.

        For n = 1000: m ≥ (2001 − √(2001² − 2,002,000))/2 = 293.04; for n = 6000: m ≥ 1757.5. The order does not matter.
        """
        order = torch.randperm(size, generator=torch.Generator().manual_seed(0))
        logits = (size - torch.arange(size).float()).log()[order].unsqueeze(0)
        kept = torch.tensor(support(logits, top_p=0.5)[0])
        assert kept.sum() == expected
        assert order[kept].max() == expected - 1

    def test_a_narrow_nucleus_in_a_large_vocabulary(self):
        """ln 4 above 6000 tokens at −12: the first has 4/(4 + 2 + 1 + .04) = .568, the first two .852."""
        logits = torch.full((2, 6003), -12.0)
        logits[0, [5, 77, 4000]] = torch.tensor([4.0, 2.0, 1.0]).log()
        logits[1, [6002, 0, 1]] = torch.tensor([4.0, 2.0, 1.0]).log()
        kept = torch.tensor(support(logits, top_p=0.8))
        assert [row.nonzero().flatten().tolist() for row in kept] == [[5, 77], [0, 6002]]

    @pytest.mark.parametrize("size", [300, 6000])
    def test_a_token_the_model_rules_out_is_no_obstacle(self, size):
        logits = torch.full((1, size), -math.inf)
        logits[0, ::3] = torch.arange(size // 3) * 1e-4
        kept = torch.tensor(support(logits, top_p=0.9)[0])
        assert not kept[1::3].any()
        assert logits.softmax(-1)[0, kept].sum() == pytest.approx(0.9, abs=0.01)

    @settings(max_examples=40, deadline=None)
    @given(
        seed=st.integers(0, 10**6),
        size=st.sampled_from([2, 7, 63, 64, 65, 300, 600, 5000]),
        spread=st.sampled_from([0.01, 1.0, 8.0]),
        temperature=st.sampled_from([0.3, 1.0, 1.7]),
        top_k=st.sampled_from([None, 1, 5, 200, 10_000]),
        top_p=st.sampled_from([0.05, 0.5, 0.9, 0.999, 1.0]),
    )
    def test_equals_sorting_and_looping(self, seed, size, spread, temperature, top_k, top_p):
        sampling = SamplingConfig(temperature=temperature, top_k=top_k, top_p=top_p)
        rows = 3 if size < 5000 else 1  # the loop is slow
        logits = torch.randn(rows, size, generator=torch.Generator().manual_seed(seed)) * spread
        got = probabilities(logits, sampling)
        for row, values in zip(got.tolist(), logits.tolist(), strict=True):
            expected = naive_distribution(values, sampling)
            # A token whose cumulative probability equals top_p up to rounding may fall on either side.
            if sum(a > 0 for a in row) == sum(b > 0 for b in expected):
                assert np.allclose(row, expected, atol=1e-5)
            else:
                whole = naive_distribution(values, SamplingConfig(temperature=temperature, top_k=top_k))
                assert sum(b for a, b in zip(row, whole, strict=True) if a > 0) == pytest.approx(top_p, abs=1e-4)


class TestDraw:
    def test_golden_positions(self):
        """Cumulative (.2, .5, 1): the token is the first whose cumulative probability exceeds the number."""
        probabilities = torch.tensor([[0.2, 0.3, 0.5]]).expand(6, 3)
        numbers = torch.tensor([0.0, 0.19, 0.21, 0.49, 0.51, 0.99])
        assert inverse_cdf(probabilities, numbers).tolist() == [0, 0, 1, 1, 2, 2]

    @pytest.mark.parametrize("size", [10, 5000])
    def test_a_token_without_probability_is_never_drawn(self, size):
        weights = torch.zeros(4, size)
        weights[:, 3], weights[:, 7] = 0.25, 0.75
        largest = np.nextafter(1.0, 0.0)  # rounds to 1 in float32
        drawn = inverse_cdf(weights, torch.tensor([0.0, 0.24, 0.26, largest], dtype=torch.float64))
        assert drawn.tolist() == [3, 3, 7, 7]

    def test_parallel_sums_that_are_not_monotone(self):
        """A cumulative weight that rises at a token of weight 0 through rounding alone: the next token with weight is meant."""
        weights = torch.tensor([[0.5, 0.0, 0.5]])
        cumulative = torch.tensor([[0.5, 0.5000001, 1.0]])
        assert _first_above(cumulative, torch.tensor([[0.50000005]]), weights).item() == 2
        assert _first_above(cumulative, torch.tensor([[0.3]]), weights).item() == 0

    @pytest.mark.parametrize("size", [4096, 5000, 50_000])
    def test_large_vocabularies_are_searched_blockwise_to_the_same_token(self, size):
        generator = torch.Generator().manual_seed(0)
        weights = torch.rand(50, size, generator=generator) ** 8
        numbers = torch.rand(50, generator=generator, dtype=torch.float64)
        exact = weights.double().cumsum(-1)
        expected = (exact > numbers.unsqueeze(-1) * exact[:, -1:]).int().argmax(-1)
        assert (inverse_cdf(weights, numbers) - expected).abs().max() <= 1  # sums in another order may meet a neighbour

    def test_frequencies_and_logprobs_are_those_of_the_distribution(self):
        """20,000 draws at temperature .7, top-k 4: every frequency within 4 standard errors of the naive probability."""
        sampling = SamplingConfig(temperature=0.7, top_k=4)
        logits = [1.0, 0.5, -0.3, 2.0, 0.0, -1.0]
        expected = naive_distribution(logits, sampling)
        numbers = torch.from_numpy(np.random.default_rng(0).random(20_000))
        tokens, scores = draw(torch.tensor([logits]).expand(20_000, -1), numbers, sampling)
        for token, probability in enumerate(expected):
            frequency = (tokens == token).double().mean().item()
            assert abs(frequency - probability) <= 4 * math.sqrt(probability * (1 - probability) / 20_000)
            if probability > 0:
                assert scores[tokens == token][0].item() == pytest.approx(math.log(probability), abs=1e-5)

    def test_greedy_takes_the_most_probable_token_for_certain(self):
        """BC-10: temperature 0 does not divide by zero."""
        tokens, scores = draw(torch.tensor([[0.0, 3.0, 1.0]]), torch.zeros(1), SamplingConfig(temperature=0))
        assert tokens.tolist() == [1]
        assert scores.tolist() == [0.0]


class ScriptedDecoding:
    """Logits that make each row write its script, whatever is drawn; records which rows are left in the batch."""

    def __init__(self, scripts: list[list[int]], vocabulary: int = 12) -> None:
        self.scripts = scripts
        self.vocabulary = vocabulary
        self.position = 0
        self.sizes = [len(scripts)]
        self._refresh()

    def _refresh(self) -> None:
        tokens = torch.tensor([script[self.position] for script in self.scripts])
        self.logits = torch.nn.functional.one_hot(tokens, self.vocabulary).log()

    def step(self, tokens: torch.Tensor) -> None:
        assert tokens.tolist() == [script[self.position] for script in self.scripts]
        self.position += 1
        self._refresh()

    def keep(self, rows: torch.Tensor) -> None:
        self.scripts = [self.scripts[row] for row in rows.tolist()]
        self.sizes.append(len(rows))
        self._refresh()


class TestDecode:
    def test_a_sequence_ends_with_its_first_end_token(self):
        """BC-14: [7, 8, 2, 2, 2] stops at the first 2 and keeps it; [7, 8, 9, 5, 6] is cut by the limit."""
        drawn = decode(lambda: ScriptedDecoding([[7, 8, 2, 2, 2], [7, 8, 9, 5, 6]]), torch.zeros(2, 5), SamplingConfig(), {2})
        assert drawn.tokens == [[7, 8, 2], [7, 8, 9, 5, 6]]
        assert drawn.stopped == [True, False]
        assert [len(scores) for scores in drawn.logprobs] == [3, 5]

    def test_every_end_token_ends(self):
        drawn = decode(lambda: ScriptedDecoding([[7, 2, 1], [7, 3, 1], [7, 4, 1]]), torch.zeros(3, 3), SamplingConfig(), {2, 3})
        assert drawn.tokens == [[7, 2], [7, 3], [7, 4, 1]]

    def test_an_end_token_at_the_limit_still_stops(self):
        drawn = decode(lambda: ScriptedDecoding([[7, 2]]), torch.zeros(1, 2), SamplingConfig(), {2})
        assert drawn.stopped == [True]

    def test_an_end_token_of_id_0_is_one(self):
        drawn = decode(lambda: ScriptedDecoding([[7, 0, 5]]), torch.zeros(1, 3), SamplingConfig(), {0})
        assert drawn.tokens == [[7, 0]]

    def test_sequences_that_ended_leave_the_batch_and_nothing_else_changes(self):
        scripts = [[5, 2, 9, 9, 9, 9], [5, 6, 7, 8, 9, 2], [2, 9, 9, 9, 9, 9], [5, 6, 7, 2, 9, 9]]
        state = ScriptedDecoding([list(script) for script in scripts])
        drawn = decode(lambda: state, torch.zeros(4, 6), SamplingConfig(), {2})
        assert drawn.tokens == [[5, 2], [5, 6, 7, 8, 9, 2], [2], [5, 6, 7, 2]]
        assert state.sizes == [4, 3, 2, 1]

    def test_a_limit_of_0_draws_nothing(self):
        def start() -> ScriptedDecoding:
            raise AssertionError("nothing needs to be read")

        drawn = decode(start, torch.zeros(2, 0), SamplingConfig(max_new_tokens=0), {2})
        assert (drawn.tokens, drawn.logprobs, drawn.stopped) == ([[], []], [[], []], [False, False])
