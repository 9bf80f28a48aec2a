"""The Railgym server: environments, episodes, the log, and scoring by replay."""
