"""A synthetic verifier with a known best mask, built from a small model."""
