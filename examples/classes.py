"""Two programmers, two turns: the methods of a class are divided, written at once, tested together, and talked about.

python examples/classes.py
"""

import llm_envs
from llm_envs.testing import ScriptedPolicy, transcript

# What a model might write: the second programmer forgets in the first turn that the bucket fills with time.
FIRST = [
    "def wait(self, time, count=1):\n    if count > self.size:\n        return None\n"
    "    return max(0, (count - self.fill(time)) / self.per_second)\n"
] * 2
TAKE = (
    "def take(self, time, count=1):\n    if self.fill(time) < count:\n        return False\n"
    "    self.tokens -= count\n    return True\n"
)
SECOND = [
    f"def fill(self, time):\n    return self.tokens\n\n{TAKE}",
    "```python\ndef fill(self, time):\n    self.tokens = min(self.size, self.tokens + (time - self.time) * self.per_second)\n"
    f"    self.time = time\n    return self.tokens\n\n{TAKE}```",
]


def scripted(texts):
    """A policy that writes the turns' texts one after the other: the length of a sample's key says the turn."""
    return ScriptedPolicy(lambda prompt, k, key: texts[min(len(key) - 4, len(texts) - 1)])


if __name__ == "__main__":
    env = llm_envs.make("classeval-v0", num_turns=2, original_prompt=False, previous_response=False)
    row = next(row for row in [*env.items, *env.eval_items] if row["class_name"] == "TokenBucket")
    print(transcript(env, {"coder_0": scripted(FIRST), "coder_1": scripted(SECOND)}, [row]))
