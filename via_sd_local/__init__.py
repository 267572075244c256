"""Three-tier speculative decoding for GGUF models on llama.cpp."""
