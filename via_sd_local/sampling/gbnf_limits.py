"""How large a GBNF grammar may be."""

MAX_DEPTH = 200  # nested parentheses: llama.cpp's parser calls itself once for each
MAX_RULES = 10_000  # rules and groups: llama.cpp's search for left recursion may call itself once for each
MAX_REPETITIONS = 2000  # MAX_REPETITION_THRESHOLD of llama-grammar.cpp, which takes a larger maximum as no limit
