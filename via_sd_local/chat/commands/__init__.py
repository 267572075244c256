"""The slash commands of the chat, such as `/mode` and `/save`; `registry` lists them all."""
