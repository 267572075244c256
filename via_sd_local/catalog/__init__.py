"""Names of models and the files that they stand for; downloads."""
