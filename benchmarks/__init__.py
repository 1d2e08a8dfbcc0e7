"""What the pipeline costs over the bare limit of its servers, each ratio taken within one run on one machine."""
