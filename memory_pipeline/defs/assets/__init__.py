"""The derivation of one workspace, from the ledger's file to the collection that is searched."""
