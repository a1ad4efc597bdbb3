"""Load tests by named profiles: `make loadtest PROFILE=steady`. docs/load-testing.md tells what they mean."""
