"""The service's own HTTP protocol for uvicorn: headers by httptools, large bodies straight into their buffers."""
