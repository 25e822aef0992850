"""Tool use in teams: parallel calls of one request (`bfcl-parallel-v0`), API classes that are really called (`bfcl-multiturn-v0`)."""
