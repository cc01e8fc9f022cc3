"""A public room: what an adversary can learn from a privacy guarantee, in numbers, words and a picture."""
