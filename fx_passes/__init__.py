"""Part of opgraft."""
