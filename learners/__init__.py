"""Learners: from a stream of env steps to parameters."""
