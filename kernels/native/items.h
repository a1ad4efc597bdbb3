// The memory of a Python array, as the compiled functions read and fill it.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <type_traits>

namespace logitd {

// The memory of a contiguous array of T, held while this lives. The buffer protocol costs a tenth of an ndarray argument.
template <typename T>
class Items {
public:
    explicit Items(nanobind::handle array) {
        const int flags = std::is_const_v<T> ? PyBUF_SIMPLE : PyBUF_WRITABLE;
        if (array.is_none()) return;
        if (PyObject_GetBuffer(array.ptr(), &view_, flags) != 0) nanobind::raise_python_error();
    }
    Items(const Items&) = delete;
    Items& operator=(const Items&) = delete;
    ~Items() {
        if (view_.obj) PyBuffer_Release(&view_);
    }
    T* data() const { return static_cast<T*>(view_.buf); }
    int64_t size() const { return int64_t(view_.len) / int64_t(sizeof(T)); }

private:
    Py_buffer view_{};
};

}  // namespace logitd
