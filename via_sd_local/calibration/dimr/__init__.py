"""DIMR: the search for the mask of the slim tier, over the verifier's own answers to a few prompts.

`texts` and `answers` make the calibration text, `evaluation` runs masks over it, `objective` says what their logits are
worth, `strategies` propose masks, `search` brings these together.
"""
