"""Tutorial: two agents answer the same question, the second at two to three times the length of the first.

python examples/length_ratio.py               # 400 items, about half a minute on one core
python examples/length_ratio.py --items 80    # a look at it

Everything that makes up a task is an ordinary function or list here. To train models of your own, name them in place of "tiny".
"""

import argparse
import math

from learners import MAGRPOConfig, MAGRPOTrainer

THINGS = ("sea", "moon", "river", "bird", "forest", "winter", "summer", "night", "star", "city", "garden", "mountain")


def question(item):
    """What an agent reads of a row."""
    return f"tell me about {item['topic']}."


def length_ratio(first, second):
    """1 where the second text is two to three times as long as the first, else exp(-distance). In [0, 1]; 0 if the first is empty.

    A reward gets a list of K texts from each agent, those with the same index belong together, and returns K numbers.
    """
    ratios = [len(two) / len(one) if one else -math.inf for one, two in zip(first, second, strict=True)]
    return [math.exp(-max(2 - ratio, ratio - 3, 0)) for ratio in ratios]


def build_trainer(items):
    """The trainer. A `datasets.Dataset` may stand in place of each list of rows."""
    return MAGRPOTrainer(
        agent_model="tiny",  # a model name, a folder, or the tiny model that is built on this machine; each agent gets a copy
        num_agents=2,
        formatters=[question, question],  # one for each agent, in order; a single function serves all
        reward_func=length_ratio,
        train_dataset=[{"topic": f"the {THINGS[i % len(THINGS)]}"} for i in range(items)],
        eval_dataset=[{"topic": f"the {thing}"} for thing in THINGS],
        args=MAGRPOConfig(
            num_train_epochs=1,
            num_generations=8,  # K: answers each agent gives to a question; what is better than the group's mean is made likelier
            rollout_buffer_size=4,  # questions an update
            agent_learning_rate=3e-4,  # the tiny model stands a far higher rate than a real one (the default is 5e-6)
            weight_decay=0.0,
            max_grad_norm=1.0,
            max_new_tokens=48,
            temperature=1.0,  # draw from the model's own distribution: no top-p, no top-k
            top_p=1.0,
            top_k=None,
            eval_interval=0,  # evaluate by hand, below
            eval_num_samples=len(THINGS),
            eval_batch_size=len(THINGS),
        ),
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--items", type=int, default=400, help="questions to train on")
    parser.add_argument("--save", help="folder for the trained agents")
    options = parser.parse_args()

    trainer = build_trainer(options.items)
    before = trainer.evaluate()["eval/turn_1/reward_mean"]
    trainer.train()
    after = trainer.evaluate()["eval/turn_1/reward_mean"]
    print(f"evaluation reward: {before:.2f} before, {after:.2f} after {trainer.numbering.env_step} env steps")

    # Only length is paid for, so the tiny model pads, with repetitions or rows of dots. Reward what you want to read.
    for step in trainer.last_evaluation[:2]:
        print(f"\n{step.prompts['agent_0']}")
        for agent, completion in step.completions.items():
            print(f"  {agent} ({len(completion.text)} characters): {completion.text}")
    print(f"\nmetrics: {trainer.output_dir / 'metrics.jsonl'}")
    if options.save:
        trainer.save_model(options.save)  # agent_0/ and agent_1/, for AutoModelForCausalLM.from_pretrained
