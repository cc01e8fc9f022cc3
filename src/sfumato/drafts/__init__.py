"""First drafts of project files, and how well a description fits: for the steward of the records alone."""
