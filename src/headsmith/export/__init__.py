"""Models as files: our own safetensors file with the proof, folders for other tools, and what stock models hold."""
