"""Preference learning: pairs of joint responses, a joint reward model, MADPO, MARLHF and their iterative forms."""
