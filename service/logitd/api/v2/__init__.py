"""Open Inference Protocol v2: the same computations for clients of Triton and KServe."""

from logitd.api.v2 import infer, memory_routes, model_routes, service

ROUTERS = (service.router, model_routes.router, infer.direct, infer.router, memory_routes.router)
DIRECT = infer.DIRECT_PATHS
