"""Two texts about one source that have to fit it and each other: summaries of a post, paragraphs of an introduction."""
