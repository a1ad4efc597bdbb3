// What the other files add to the Python module.
#pragma once

#include <nanobind/nanobind.h>

#include "attention.h"

namespace logitd {

void bind_attention(nanobind::module_& module, const Attention* (*active)());
void bind_heads(nanobind::module_& module);

}  // namespace logitd
