"""The loops of the four modes, one file each, and what they share."""
