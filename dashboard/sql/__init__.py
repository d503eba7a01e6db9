"""The fixed catalogue of queries behind the pages, as text. Holds no values and no logic."""
