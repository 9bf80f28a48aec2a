"""Episodes in the formats of others: each from the replayed log and its scores.

`selection` says which episodes, `conversation` puts one as messages of a chat, and there is one
module for each format. A log as it stands, unscored, is exported by `env_server.log.export`.
"""
