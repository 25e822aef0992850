"""Two turns: what happens in between is a function of yours, and training collects a tree.

python examples/multi_turn.py                # half a minute on one core
python examples/multi_turn.py --items 16     # a look at it

Two agents pick a word at the same time. If they differ, each is told what the other said and picks again. In the first turn each
agent gives K answers; each of the K pairs leads to a second turn, and there to K pairs more.
"""

import argparse

from learners import MAGRPOConfig, MAGRPOTrainer

WORDS = ("red", "blue", "green", "gold")
PICK = f"pick one word: {' '.join(WORDS)}"


def named(text):
    """The word an answer names, or "" unless it is exactly one of the four."""
    found = [word for word in WORDS if word in text.split()]
    return found[0] if len(found) == 1 else ""


def agreement(first, second, states):
    """1 for the same word in the first turn, 1/2 in the second, else 0. In [0, 1].

    `states` is given because it is named here. It knows the history, so the reward can depend on the turn.
    """
    worth = 1.0 if states[0].turn == 0 else 0.5
    return [worth * (named(one) == named(two) != "") for one, two in zip(first, second, strict=True)]


def tell_each_other(agent_completions, rewards):
    """The second turn's prompts, or None where the episode is over."""
    if all(reward > 0 for reward in rewards):
        return None
    first, second = (named(text) or "nothing" for text in agent_completions)
    return [f"you said {first}. others said {second}. {PICK}", f"you said {second}. others said {first}. {PICK}"]


def build_trainer(items):
    """The trainer."""
    return MAGRPOTrainer(
        agent_model="tiny",
        num_agents=2,
        reward_func=agreement,
        external_transition=tell_each_other,
        train_dataset=[{"prompt": PICK}] * items,
        eval_dataset=[{"prompt": PICK}] * 16,
        args=MAGRPOConfig(
            num_turns=2,
            num_train_epochs=1,
            num_generations=4,  # 4 pairs in turn 1, and 4 more after each of those that go on: up to 20 env steps an item
            discount=0.9,  # return of a pair = its reward + 0.9 · mean return of the pairs that followed
            early_termination_threshold=0.9,  # where nearly all pairs of a state agree, turn 2 has nothing left to teach
            external_prompt_passthrough=True,  # take the transition's prompts as they are
            rollout_buffer_size=8,
            agent_learning_rate=3e-4,
            weight_decay=0.0,
            max_new_tokens=8,
            temperature=1.0,
            top_p=1.0,
            top_k=None,
            eval_interval=0,
            eval_num_samples=16,
            eval_batch_size=16,
        ),
        progress=False,
    )


def returns_by_turn(trainer):
    """Mean return from each turn on, over the evaluation's episodes that reach it."""
    values = trainer.evaluate()
    return ", ".join(f"turn {turn}: {values[key]:.2f}" for turn in (1, 2) if (key := f"eval/turn_{turn}/expected_return") in values)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--items", type=int, default=128, help="items to train on")
    trainer = build_trainer(parser.parse_args().items)
    print("before:", returns_by_turn(trainer))
    trainer.train()
    print("after: ", returns_by_turn(trainer))
    print(f"{trainer.numbering.episode} trees of {trainer.numbering.env_step / trainer.numbering.episode:.1f} env steps on average")
