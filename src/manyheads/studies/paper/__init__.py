"""The paper's tables and figures: run again, stored, checked against its claims, and drawn."""
