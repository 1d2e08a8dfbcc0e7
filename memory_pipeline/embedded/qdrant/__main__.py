"""The command `python -m memory_pipeline.embedded.qdrant`."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from memory_pipeline.embedded.qdrant.errors import ApiError
from memory_pipeline.embedded.qdrant.server import Options, serve
from memory_pipeline.embedded.serving import StartRefused

EXIT_NOT_STARTED = 2
EXIT_NOT_FLUSHED = 1


def main() -> int:
    """Serve until a signal. 0 stopped and flushed, 1 stopped but not flushed, 2 not started (and one line says why)."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    try:
        serve(_options())
    except StartRefused as refusal:
        sys.stderr.write(f"embedded qdrant: {refusal}\n")
        return EXIT_NOT_STARTED
    except ApiError as failure:
        sys.stderr.write(f"embedded qdrant: {failure.message}\n")
        return EXIT_NOT_FLUSHED
    return 0


def _options() -> Options:
    parser = argparse.ArgumentParser(prog="python -m memory_pipeline.embedded.qdrant", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True, help="0 for any that is free")
    parser.add_argument("--storage", type=Path, required=True, help="folder for the data; made if it is not there")
    parser.add_argument("--ready-file", type=Path, required=True, help="written once it listens: pid and port as JSON")
    parser.add_argument("--api-key-file", type=Path, help="file with the key that every request must show")
    return Options(**vars(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
