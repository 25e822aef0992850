"""Planning a trip: what two planners read, what a right plan earns, and what one wrong name costs and is told.

python examples/travel.py
"""

import llm_envs
from llm_envs.testing import audit_rewards


def show(title, infos):
    """The terms of a turn."""
    terms = {name.removeprefix("reward/"): value for name, value in infos.items() if name.startswith("reward/")}
    print(f"{title}: {infos['raw_reward']:.2f} (" + ", ".join(f"{name} {value:.2f}" for name, value in terms.items()) + ")")


if __name__ == "__main__":
    env = llm_envs.make("travel-v0", levels=["medium"], days=[3], num_turns=2, original_prompt=False, previous_response=False)
    observations, _ = env.reset(seed=0, options={"item": 0})
    print(observations["experience_0"]["prompt"])

    # The task's own best answer, found by search: never for training.
    right = dict(zip(env.possible_agents, env.task.reference(env.items[0]), strict=True))
    print("\nlogistics_0 writes\n" + right["logistics_0"])

    restaurant = env.items[0]["catalogue"]["restaurants"][0]
    wrong = {**right, "experience_0": right["experience_0"].replace('"-"', f'"{restaurant["name"]}, Atlantis"', 1)}
    observations, *_, infos = env.step(wrong)
    show("\na restaurant in a city that is not there", infos["experience_0"])
    print(f"experience_0 is told\n{observations['experience_0']['prompt']}\n")
    *_, infos = env.step(right)
    show("the right plan in the second of two turns", infos["experience_0"])

    print()
    print(audit_rewards(llm_envs.make("travel-v0"), rows=4))
