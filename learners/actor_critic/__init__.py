"""Actor-critic learners: a critic for each agent (IAC), or one for the team (MAAC)."""
