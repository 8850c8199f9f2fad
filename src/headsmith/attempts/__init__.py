"""From a request to a certified model: attempts, each with another share of the error, until one is met."""
