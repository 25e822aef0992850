"""Programming problems that helpers and a main programmer solve together: HumanEval, CoopHumanEval, MBPP."""
