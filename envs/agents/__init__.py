"""Other people's agents, unmodified, in a sandbox: one file each, with its installation and its start."""
