"""The subcommands of `llm-marl`, one file each. Nothing else imports them."""
