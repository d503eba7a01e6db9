"""tallygate audit verify: whether the record is what the copies sealed, and where it is not."""
