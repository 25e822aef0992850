"""The task families that come with the package, one module each: `task(...)` gives a `Task`, `llm_envs.make(id, ...)` its env."""
