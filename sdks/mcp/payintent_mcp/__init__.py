"""The merchant's API as tools for agents, over the Model Context Protocol."""
