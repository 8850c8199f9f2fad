"""Looking inside a model: what heads and registers stand for, in words of the target, and the model told in words."""
