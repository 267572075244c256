"""What the drop-in `Llama` is made of."""
