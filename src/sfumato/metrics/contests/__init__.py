"""Contest packs as published or simulated, the entries that answer them, and the official scores."""
