"""The laboratory: what is done with the compiler. It imports the compiler, and the compiler never imports it."""
