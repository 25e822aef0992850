"""Classes whose methods are divided among programmers, in the form of ClassEval."""
