"""The typed experiment, its way from and to TOML, and what is said when it is wrong."""
