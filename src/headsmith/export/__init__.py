"""Getting models out: our own safetensors file."""
