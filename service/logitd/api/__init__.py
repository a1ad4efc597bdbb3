"""HTTP: routes, bodies, schemas, problem documents."""
