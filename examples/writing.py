"""Writing: what honest and careless pairs of summaries earn, by the reference system's reward and by one that reads the source.

python examples/writing.py

Nothing is trained here. Try your own rows with `llm_envs.make("tldr-v0", source="path", path="posts.jsonl")`.
"""

import llm_envs

NONSENSE = (
    "plum river stone mortar lantern gate copper field",
    "also but because so first when for example indeed similarly if in order to overall plum amber quartz",
)


def pairs_for(row):
    """Short and detailed summary of the row, by teams of several kinds."""
    words = row["prompt"].split()
    return {
        "honest": (row["summary"], row["detail"]),
        "nonsense": NONSENSE,
        "first words": (" ".join(words[:25]), " ".join(words[:65])),
        "keywords": (" ".join(sorted(words, key=len)[-12:]), " ".join(sorted(words, key=len)[-40:])),
    }


def score(env, row, pair):
    """What the pair earns on the row, and its terms."""
    start = env.initial(row, (0, 0))
    (transition,) = env.branch(start, [dict(zip(env.possible_agents, pair, strict=True))])
    agent = env.possible_agents[0]
    return transition.rewards[agent], transition.infos[agent]


if __name__ == "__main__":
    reference = llm_envs.make("tldr-v0", scoring="reference")
    grounded = llm_envs.make("tldr-v0")
    row = grounded.items[0]
    print(f"{row['prompt']}\n")
    print(f"{'pair':<16} {'reference':>17} {'grounded':>9}   how well the two texts rest on the post")
    for name, pair in pairs_for(row).items():
        theirs, _ = score(reference, row, pair)
        ours, info = score(grounded, row, pair)
        measures = ", ".join(f"{key} {info[f'reward/{key}_detail']:.2f}" for key in ("recall", "precision", "copied", "linked"))
        print(f"{name:<16} {theirs:>9.2f} of 2.98 {ours:>9.2f}   detail: {measures}")

    # Between turns writers can be told what was measured.
    env = llm_envs.make("tldr-v0", num_turns=2, original_prompt=False)
    env.reset(seed=0, options={"item": 0})
    observations, *_ = env.step({"summary_0": row["summary"], "detail_0": row["summary"]})
    print(f"\nafter twice the short summary detail_0 reads:\n{observations['detail_0']['prompt']}")
