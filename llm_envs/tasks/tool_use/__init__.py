"""Tool use: parallel calls of one request (`bfcl-parallel-v0`), API classes that are called in turns (`bfcl-multiturn-v0`)."""
