"""The compiler's product: an explicit attention-only softmax transformer."""
