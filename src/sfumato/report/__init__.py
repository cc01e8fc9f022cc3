"""A public room: one offline HTML report on a release; what the truth says reaches it as plain records."""
