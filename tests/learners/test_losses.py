"""Guards the loss maths: values worked by hand, naive loops over tokens, reductions, micro-batches, finite differences."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.losses import (
    AGGREGATIONS,
    bradley_terry_loss,
    clipped_ratio_loss,
    clipped_tokens,
    clipped_value_loss,
    completion_weights,
    masked_sum,
    policy_gradient_loss,
    reference_kl,
    value_loss,
)

NAN = math.nan


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def ragged(lengths, seed=0, pad=NAN):
    """Random log-probabilities [B, T] and advantages [B] in float64 and the mask of `lengths`; padding holds `pad`."""
    generator = torch.Generator().manual_seed(seed)
    shape = (len(lengths), max(lengths, default=0))
    mask = torch.arange(shape[1])[None, :] < torch.tensor(lengths)[:, None]
    logprobs = -3 * torch.rand(shape, generator=generator, dtype=torch.float64)
    old = logprobs + 0.6 * torch.randn(shape, generator=generator, dtype=torch.float64)
    advantages = torch.randn(shape[0], generator=generator, dtype=torch.float64)
    return logprobs.masked_fill(~mask, pad), old.masked_fill(~mask, pad), mask, advantages


def naive_loss(token_loss, group_sizes, lengths, aggregation):
    """Means taken one after the other as their names say; `token_loss(b, t)` is −A log π or its clipped form, before any mean."""
    sums = [sum(token_loss(b, t) for t in range(length)) for b, length in enumerate(lengths)]
    if aggregation == "token_mean":
        return sum(sums) / max(sum(lengths), 1)
    if aggregation == "sequence_mean":
        sums = [total / length if length else 0.0 for total, length in zip(sums, lengths, strict=True)]
    node_losses, start = [], 0
    for size in group_sizes:
        node_losses.append(sum(sums[start : start + size]) / size)
        start += size
    return sum(node_losses) / len(group_sizes)


class TestCompletionWeights:
    """Two nodes, of 2 and 3 completions, with 4, 1, 2, 0 and 3 tokens."""

    sizes, lengths = (2, 3), (4, 1, 2, 0, 3)

    def test_sequence_sum(self):
        """1/2 · 1/2 and 1/2 · 1/3, whatever the lengths."""
        assert completion_weights(self.sizes, self.lengths).tolist() == pytest.approx([1 / 4] * 2 + [1 / 6] * 3, abs=1e-15)

    def test_sequence_mean(self):
        """Divided by the length too; the empty completion has nothing to weigh, its weight only has to be finite."""
        weights = completion_weights(self.sizes, self.lengths, "sequence_mean").tolist()
        assert weights == pytest.approx([1 / 16, 1 / 4, 1 / 12, 1 / 6, 1 / 18], abs=1e-15)

    def test_token_mean(self):
        assert completion_weights(self.sizes, self.lengths, "token_mean").tolist() == pytest.approx([0.1] * 5, abs=1e-15)

    @pytest.mark.parametrize("aggregation", AGGREGATIONS)
    def test_no_tokens_at_all(self, aggregation):
        assert torch.isfinite(completion_weights([2], [0, 0], aggregation)).all()

    def test_wrong_arguments_are_named(self):
        with pytest.raises(ValueError, match=r"loss_aggregation must be one of sequence_sum, .* got 'sum'"):
            completion_weights([1], [1], "sum")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=r"expected 3 lengths for nodes of \[1, 2\] completions, got 2"):
            completion_weights([1, 2], [5, 5])
        with pytest.raises(ValueError, match="expected 2 lengths"):
            completion_weights([2, 0], [5, 5])


class TestPolicyGradient:
    def test_hand_worked(self):
        """One node, K = 2. Completion 0: log π = −1, −2, A = 2 → 6. Completion 1: −.5 (then padding), A = −1 → −.5.

        Sum: (6 − .5)/2 = 2.75. Sequence mean: (3 − .5)/2 = 1.25. Token mean: 5.5/3.
        """
        logprobs = torch.tensor([[-1.0, -2.0], [-0.5, NAN]], dtype=torch.float64)
        mask = torch.tensor([[True, True], [True, False]])
        advantages = torch.tensor([2.0, -1.0], dtype=torch.float64)
        losses = {
            aggregation: policy_gradient_loss(logprobs, mask, advantages, completion_weights([2], [2, 1], aggregation)).item()
            for aggregation in AGGREGATIONS
        }
        assert losses == pytest.approx({"sequence_sum": 2.75, "sequence_mean": 1.25, "token_mean": 5.5 / 3}, abs=1e-12)

    def test_gradient_reaches_every_token_the_end_token_included(self):
        """An answer that is its end token alone, of advantage −.75 among four: ∂L/∂log π = .75/4; the others get −.25/4 a token."""
        logprobs = torch.full((4, 3), -1.0, dtype=torch.float64, requires_grad=True)
        lengths = [1, 2, 2, 3]
        mask = torch.arange(3)[None, :] < torch.tensor(lengths)[:, None]
        advantages = torch.tensor([-0.75, 0.25, 0.25, 0.25])
        policy_gradient_loss(logprobs, mask, advantages, completion_weights([4], lengths)).backward()
        expected = [[0.1875, 0, 0], [-0.0625, -0.0625, 0], [-0.0625, -0.0625, 0], [-0.0625, -0.0625, -0.0625]]
        assert logprobs.grad is not None
        assert logprobs.grad.tolist() == expected

    @pytest.mark.parametrize("aggregation", AGGREGATIONS)
    @given(
        sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4),
        data=st.data(),
    )
    @settings(max_examples=40, deadline=None)
    def test_equals_a_loop_over_tokens(self, aggregation, sizes, data):
        lengths = data.draw(st.lists(st.integers(0, 5), min_size=sum(sizes), max_size=sum(sizes)))
        logprobs, _, mask, advantages = ragged(lengths, seed=len(lengths))
        loss = policy_gradient_loss(logprobs, mask, advantages, completion_weights(sizes, lengths, aggregation))
        naive = naive_loss(lambda b, t: -advantages[b].item() * logprobs[b, t].item(), sizes, lengths, aggregation)
        assert loss.item() == pytest.approx(naive, abs=1e-12)

    @pytest.mark.parametrize("aggregation", AGGREGATIONS)
    def test_finite_differences_with_padding_that_is_no_number(self, aggregation):
        lengths = [3, 1, 0, 4]
        logprobs, _, mask, advantages = ragged(lengths)
        weights = completion_weights([2, 2], lengths, aggregation)

        def loss(own):
            """Of the real tokens only, padding put back: finite differences of NaN tell nothing."""
            return policy_gradient_loss(logprobs.masked_scatter(mask, own), mask, advantages, weights)

        assert torch.autograd.gradcheck(loss, logprobs[mask].clone().requires_grad_())

    def test_advantages_and_weights_receive_no_gradient(self):
        logprobs, _, mask, advantages = ragged([2, 2])
        advantages.requires_grad_()
        logprobs.requires_grad_()
        policy_gradient_loss(logprobs, mask, advantages, completion_weights([2], [2, 2])).backward()
        assert advantages.grad is None
        assert logprobs.grad is not None

    def test_precision_is_that_of_the_log_probabilities(self):
        logprobs, old, mask, advantages = ragged([2, 3])
        weights = completion_weights([2], [2, 3])
        for dtype in (torch.float32, torch.float64):
            assert policy_gradient_loss(logprobs.to(dtype), mask, advantages, weights).dtype == dtype
            assert clipped_ratio_loss(logprobs.to(dtype), old.to(dtype), mask, advantages, weights, 0.2).dtype == dtype


class TestClippedRatio:
    def test_hand_worked(self):
        """ε = .2, one completion a node, one token each; ρ, A → −min(ρA, clip(ρ)A) and its gradient −ρA (0 where clipped).

        1.5, +1 → −1.2, 0    1.5, −1 → 1.5, 1.5    .5, +1 → −.5, −.5    .5, −1 → .8, 0    1.1, +2 → −2.2, −2.2
        """
        ratios = torch.tensor([1.5, 1.5, 0.5, 0.5, 1.1], dtype=torch.float64)
        advantages = torch.tensor([1.0, -1.0, 1.0, -1.0, 2.0], dtype=torch.float64)
        old = torch.full((5, 1), -2.0, dtype=torch.float64)
        logprobs = (old + ratios.log()[:, None]).requires_grad_()
        mask = torch.ones(5, 1, dtype=torch.bool)
        weights = torch.ones(5, dtype=torch.float64)
        for row, expected in enumerate([-1.2, 1.5, -0.5, 0.8, -2.2]):
            rows = slice(row, row + 1)
            loss = clipped_ratio_loss(logprobs[rows], old[rows], mask[rows], advantages[rows], weights[rows], 0.2)
            assert loss.item() == pytest.approx(expected, abs=1e-12)
        clipped_ratio_loss(logprobs, old, mask, advantages, weights, 0.2).backward()
        assert logprobs.grad is not None
        assert logprobs.grad[:, 0].tolist() == pytest.approx([0.0, 1.5, -0.5, 0.0, -2.2], abs=1e-12)

    @pytest.mark.parametrize("clip_range", [0.1, 0.5, 1.5])
    @pytest.mark.parametrize("aggregation", AGGREGATIONS)
    @pytest.mark.parametrize("seed", range(3))
    def test_equals_a_loop_over_tokens(self, aggregation, clip_range, seed):
        sizes, lengths = [2, 3], [4, 1, 0, 2, 5]
        logprobs, old, mask, advantages = ragged(lengths, seed)

        def token(b, t):
            ratio = math.exp(logprobs[b, t].item() - old[b, t].item())
            advantage = advantages[b].item()
            return -min(ratio * advantage, min(max(ratio, 1 - clip_range), 1 + clip_range) * advantage)

        loss = clipped_ratio_loss(logprobs, old, mask, advantages, completion_weights(sizes, lengths, aggregation), clip_range)
        assert loss.item() == pytest.approx(naive_loss(token, sizes, lengths, aggregation), abs=1e-12)

    @pytest.mark.parametrize("clip_range", [0.2, math.inf])
    @pytest.mark.parametrize("aggregation", AGGREGATIONS)
    def test_on_policy_its_gradient_is_the_policy_gradient(self, aggregation, clip_range):
        lengths = [3, 1, 4, 2]
        logprobs, _, mask, advantages = ragged(lengths)
        weights = completion_weights([2, 2], lengths, aggregation)
        gradients = []
        for loss in (
            lambda own: policy_gradient_loss(own, mask, advantages, weights),
            lambda own: clipped_ratio_loss(own, logprobs, mask, advantages, weights, clip_range),
        ):
            own = logprobs.clone().requires_grad_()
            loss(own).backward()
            gradients.append(own.grad)
        assert torch.equal(gradients[0][mask], gradients[1][mask])

    def test_an_infinite_range_never_clips(self):
        """Then the token loss is −ρ A, ρ = e^{±3}."""
        old = torch.tensor([[-3.0], [-1.0]], dtype=torch.float64)
        logprobs = torch.tensor([[0.0], [-4.0]], dtype=torch.float64)
        mask, weights = torch.ones(2, 1, dtype=torch.bool), torch.ones(2, dtype=torch.float64)
        loss = clipped_ratio_loss(logprobs, old, mask, torch.tensor([1.0, -2.0]), weights, math.inf)
        assert loss.item() == pytest.approx(-math.exp(3) + 2 * math.exp(-3), abs=1e-12)

    def test_finite_differences(self):
        lengths = [3, 1, 0, 4]
        logprobs, old, mask, advantages = ragged(lengths)
        weights = completion_weights([2, 2], lengths)
        clipped = clipped_tokens((logprobs - old)[mask], advantages[:, None].expand_as(mask)[mask], 0.3)
        assert 0 < clipped.sum() < clipped.numel()  # both sides of the minimum are differentiated

        def loss(own):
            return clipped_ratio_loss(logprobs.masked_scatter(mask, own), old, mask, advantages, weights, 0.3)

        assert torch.autograd.gradcheck(loss, logprobs[mask].clone().requires_grad_())

    def test_a_clipped_ratio_that_overflows_has_no_gradient_instead_of_nan(self):
        logprobs = torch.tensor([[-1.0]], requires_grad=True)
        old = torch.tensor([[-200.0]])  # e^199 is infinite in float32
        loss = clipped_ratio_loss(logprobs, old, torch.ones(1, 1, dtype=torch.bool), torch.ones(1), torch.ones(1), 0.2)
        loss.backward()
        assert loss.item() == pytest.approx(-1.2)
        assert logprobs.grad is not None
        assert logprobs.grad.item() == 0.0


class TestMicroBatches:
    @pytest.mark.parametrize("aggregation", AGGREGATIONS)
    @pytest.mark.parametrize("kind", ["policy_gradient", "clipped"])
    def test_losses_and_gradients_of_the_parts_sum_to_the_whole(self, aggregation, kind):
        """Parts that cut through nodes, in any order and with their own padding width."""
        sizes, lengths = [3, 2, 1], [4, 1, 0, 2, 5, 3]
        logprobs, old, mask, advantages = ragged(lengths)
        weights = completion_weights(sizes, lengths, aggregation)

        def loss_of(own, rows):
            width = max(lengths[row] for row in rows)
            part = (own[rows, :width], mask[rows, :width], advantages[rows], weights[rows])
            if kind == "policy_gradient":
                return policy_gradient_loss(*part)
            return clipped_ratio_loss(part[0], old[rows, :width], *part[1:], clip_range=0.2)

        whole = logprobs.clone().requires_grad_()
        whole_loss = loss_of(whole, list(range(6)))
        whole_loss.backward()
        for parts in ([[5, 0], [1, 3], [2, 4]], [[row] for row in range(6)]):
            cut = logprobs.clone().requires_grad_()
            losses = [loss_of(cut, rows) for rows in parts]
            for loss in losses:
                loss.backward()
            assert sum(loss.item() for loss in losses) == pytest.approx(whole_loss.item(), abs=1e-14)
            assert cut.grad is not None and whole.grad is not None
            torch.testing.assert_close(cut.grad, whole.grad, rtol=0, atol=1e-15, equal_nan=False)

    @pytest.mark.parametrize("aggregation", AGGREGATIONS)
    def test_padding_changes_nothing(self, aggregation):
        lengths = [2, 3]
        weights = completion_weights([2], lengths, aggregation)
        logprobs, old, mask, advantages = ragged(lengths, pad=0.0)
        wider = [torch.nn.functional.pad(x, (0, 7), value=v) for x, v in ((logprobs, NAN), (old, math.inf), (mask, False))]
        assert policy_gradient_loss(wider[0], wider[2], advantages, weights) == policy_gradient_loss(
            logprobs, mask, advantages, weights
        )
        assert clipped_ratio_loss(*wider, advantages, weights, 0.2) == clipped_ratio_loss(
            logprobs, old, mask, advantages, weights, 0.2
        )

    def test_rows_without_tokens(self):
        """No token anywhere: a tensor of width 0. The loss is 0 and its gradient exists."""
        logprobs = torch.zeros(2, 0, requires_grad=True)
        mask = torch.zeros(2, 0, dtype=torch.bool)
        for aggregation in AGGREGATIONS:
            weights = completion_weights([2], [0, 0], aggregation)
            loss = policy_gradient_loss(logprobs, mask, torch.tensor([1.0, -1.0]), weights)
            loss.backward()
            assert loss.item() == 0.0


class TestReferenceKL:
    def test_hand_worked(self):
        """Policy [−1, −.5, −2], reference [−1.2, −.5, −1]: d = [−.2, 0, 1] → e^d − d − 1 = [.0187308, 0, .7182818]."""
        policy = torch.tensor([[-1.0, -0.5, -2.0]], dtype=torch.float64)
        reference = torch.tensor([[-1.2, -0.5, -1.0]], dtype=torch.float64)
        kl = reference_kl(policy, reference)
        assert kl[0].tolist() == pytest.approx([math.exp(-0.2) - 0.8, 0.0, math.e - 2], abs=1e-12)
        assert masked_sum(kl, torch.ones(1, 3, dtype=torch.bool)).item() == pytest.approx(0.7370125, abs=1e-7)

    def test_half_a_nat(self):
        assert reference_kl(torch.tensor(-1.0), torch.tensor(-0.5)).item() == pytest.approx(0.148721, abs=1e-6)

    def test_its_expectation_is_the_kl_from_policy_to_reference(self):
        """P = (.7, .2, .1), Q = (.5, .3, .2): KL(P‖Q) = .0851228, and not the reverse, .0920329."""
        p, q = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64), torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
        assert (p * reference_kl(p.log(), q.log())).sum().item() == pytest.approx(0.0851228, abs=1e-7)

    def test_never_negative_where_rounding_could_make_it_so(self):
        policy = -5 * torch.rand(20_000, generator=torch.Generator().manual_seed(0))
        difference = torch.logspace(-12, 0, 20_000) * torch.where(torch.arange(20_000) % 2 == 0, 1.0, -1.0)
        assert (reference_kl(policy, policy + difference) >= 0).all()

    def test_small_differences_keep_their_digits(self):
        """For small d it is d²/2: 5e-9 for d = 1e-4, which exp(d) − 1 − d in float32 would lose to rounding (6e-8 a step)."""
        kl = reference_kl(torch.tensor(0.0), torch.tensor(1e-4))
        assert kl.item() == pytest.approx(5e-9, rel=1e-2)

    def test_finite_differences(self):
        policy, reference, mask, _ = ragged([4, 4])
        assert torch.autograd.gradcheck(lambda p: masked_sum(reference_kl(p, reference), mask), policy.clone().requires_grad_())


def test_masked_sum_leaves_padding_out():
    values = torch.tensor([[1.0, 2.0, NAN], [4.0, math.inf, NAN], [NAN, NAN, NAN]])
    mask = torch.tensor([[True, True, False], [True, False, False], [False, False, False]])
    assert masked_sum(values, mask).tolist() == [3.0, 4.0, 0.0]


class TestBradleyTerry:
    """−log σ of the winner's lead."""

    def test_hand_worked(self):
        """Lead 1: log(1 + e⁻¹) = .313262. 2.0 against .5: log(1 + e^−1.5) = .201413, swapped 1.5 more. Equal scores: log 2."""
        winners = torch.tensor([1.0, 2.0, 0.5, -3.0], dtype=torch.float64)
        losers = torch.tensor([0.0, 0.5, 2.0, -3.0], dtype=torch.float64)
        expected = [0.313262, 0.201413, 1.701413, 0.693147]
        assert bradley_terry_loss(winners, losers).tolist() == pytest.approx(expected, abs=1e-6)

    def test_equals_the_naive_formula(self):
        generator = torch.Generator().manual_seed(0)
        winners, losers = 3 * torch.randn(2, 50, generator=generator, dtype=torch.float64)
        naive = [-math.log(1 / (1 + math.exp(loser - winner))) for winner, loser in zip(winners, losers, strict=True)]
        assert bradley_terry_loss(winners, losers).tolist() == pytest.approx(naive, abs=1e-12)

    def test_gradients_are_opposite_and_saturate(self):
        """∂L/∂s_w = −σ(s_l − s_w): −.5 at equal scores, −σ(−1.5) = −.182426, and −1 where the naive logarithm is log 0."""
        winners = torch.tensor([1.0, 2.0, -104.0], requires_grad=True)
        losers = torch.tensor([1.0, 0.5, 0.0], requires_grad=True)
        loss = bradley_terry_loss(winners, losers)
        loss.sum().backward()
        assert loss[2].item() == 104.0
        assert winners.grad is not None and losers.grad is not None
        assert winners.grad.tolist() == pytest.approx([-0.5, -0.182426, -1.0], abs=1e-6)
        assert losers.grad.tolist() == pytest.approx([0.5, 0.182426, 1.0], abs=1e-6)

    def test_finite_differences(self):
        generator = torch.Generator().manual_seed(1)
        scores = 2 * torch.randn(2, 5, generator=generator, dtype=torch.float64)
        assert torch.autograd.gradcheck(bradley_terry_loss, tuple(row.clone().requires_grad_() for row in scores))


class TestValueLosses:
    """Errors of a critic, plain and clipped around the value at collection."""

    def test_hand_worked(self):
        """(1 − .4)² = .36, (−2 − 1)² = 9; gradients −2(y − v)."""
        values = torch.tensor([0.4, 1.0], dtype=torch.float64, requires_grad=True)
        losses = value_loss(values, torch.tensor([1.0, -2.0]))
        assert losses.tolist() == pytest.approx([0.36, 9.0])
        losses.sum().backward()
        assert values.grad is not None
        assert values.grad.tolist() == pytest.approx([-1.2, 6.0])

    def test_clipping_by_hand(self):
        """ε = .2; (v_old, v, y): the larger of (y − v)² and (y − v_old ∓ at most ε)², and its gradient in v.

        (0, 1, 1)   0, (1 − .2)² = .64: the clipped one, a constant
        (0, .1, 1)  .81 both: inside the range, −2·.9
        (0, −1, 1)  4, 1.44: the plain one, −2·2
        (0, .5, 2)  2.25, 3.24: the clipped one
        (.5, .9, 0) .81, .49: the plain one, 2·.9
        (.5, .9, 1.2) .09, .25: the clipped one
        """
        old = torch.tensor([0.0, 0.0, 0.0, 0.0, 0.5, 0.5], dtype=torch.float64)
        values = torch.tensor([1.0, 0.1, -1.0, 0.5, 0.9, 0.9], dtype=torch.float64, requires_grad=True)
        targets = torch.tensor([1.0, 1.0, 1.0, 2.0, 0.0, 1.2], dtype=torch.float64)
        losses = clipped_value_loss(values, old, targets, 0.2)
        assert losses.tolist() == pytest.approx([0.64, 0.81, 4.0, 3.24, 0.81, 0.25])
        losses.sum().backward()
        assert values.grad is not None
        assert values.grad.tolist() == pytest.approx([0.0, -1.8, -4.0, 0.0, 1.8, 0.0])
        assert value_loss(values, targets)[:4].tolist() == pytest.approx([0.0, 0.81, 4.0, 2.25])

    def test_equals_the_plain_error_where_nothing_is_clipped(self):
        generator = torch.Generator().manual_seed(0)
        old, values, targets = torch.randn(3, 50, generator=generator, dtype=torch.float64)
        torch.testing.assert_close(clipped_value_loss(values, old, targets, 1e6), value_loss(values, targets))
        assert torch.equal(clipped_value_loss(values, values, targets, 1e-3), value_loss(values, targets))
        assert bool((clipped_value_loss(values, old, targets, 0.2) >= value_loss(values, targets)).all())

    def test_finite_differences(self):
        generator = torch.Generator().manual_seed(1)
        old, values, targets = torch.randn(3, 20, generator=generator, dtype=torch.float64)
        values.requires_grad_()
        assert torch.autograd.gradcheck(lambda v: value_loss(v, targets), (values,))
        assert torch.autograd.gradcheck(lambda v: clipped_value_loss(v, old, targets, 0.2), (values,))

    def test_targets_and_old_values_receive_no_gradient_and_the_precision_is_the_values(self):
        for dtype in (torch.float32, torch.float64):
            values = torch.zeros(3, dtype=dtype, requires_grad=True)
            old, targets = (torch.ones(3, dtype=torch.float64, requires_grad=True) for _ in range(2))
            loss = clipped_value_loss(values, old, targets, 0.2).sum() + value_loss(values, targets).sum()
            assert loss.dtype == dtype
            loss.backward()
            assert values.grad is not None
            assert old.grad is None and targets.grad is None
