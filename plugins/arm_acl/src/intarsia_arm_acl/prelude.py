# SPDX-License-Identifier: Apache-2.0
"""The C++ that every unit begins and ends with: memory, binding, and the C functions it exports.

A unit is one class derived from ``Unit``. Tensors between functions live in one memory group, the
functions' own buffers in a second one; both are laid out by the library. A constant is read where
the artifact is mapped, unless a function asked for padding around it: then it is copied, and freed
once no function needs it any more.
"""

from __future__ import annotations

INCLUDES = (
    "arm_compute/runtime/Allocator.h",
    "arm_compute/runtime/MemoryGroup.h",
    "arm_compute/runtime/MemoryManagerOnDemand.h",
    "arm_compute/runtime/OffsetLifetimeManager.h",
    "arm_compute/runtime/PoolManager.h",
    "arm_compute/runtime/Scheduler.h",
    "arm_compute/runtime/SubTensor.h",
    "arm_compute/runtime/Tensor.h",
)

ADAPTERS = r"""
/* Resizing works on padded tensors in old releases, and refuses them in new ones. */
#if __has_include("arm_compute/function_info/ActivationLayerInfo.h")
constexpr bool SCALE_PADS = false;
#else
constexpr bool SCALE_PADS = true;
#endif

inline FullyConnectedLayerInfo with_activation(const ActivationLayerInfo &activation)
{
    FullyConnectedLayerInfo info;
    info.activation_info = activation;
    return info;
}
"""

PRODUCT = r"""
/* Products of matrices, one for each item of a batch. NEGEMM packs its second operand once, for
   good; here both operands change, so every run makes a new one. */
class ChangingProduct : public IFunction
{
public:
    void configure(Tensor *a, Tensor *b, Tensor *result)
    {
        _a = a;
        _b = b;
        _result = result;
        // For the padding that it asks for, as long as there is no memory yet.
        each([](ITensor *x, ITensor *y, ITensor *z) {
            NEGEMM().configure(x, y, nullptr, z, 1, 0);
        });
    }

    static Status validate(const ITensorInfo *a, const ITensorInfo *b, const ITensorInfo *result)
    {
        TensorInfo x(matrix(a), 1, a->data_type()), y(matrix(b), 1, b->data_type());
        TensorInfo z(matrix(result), 1, result->data_type());
        return NEGEMM::validate(&x, &y, nullptr, &z, 1, 0);
    }

    void run() override
    {
        each([](ITensor *x, ITensor *y, ITensor *z) {
            NEGEMM function;
            function.configure(x, y, nullptr, z, 1, 0);
            function.run();
        });
    }

private:
    static TensorShape matrix(const ITensorInfo *info)
    {
        return TensorShape(info->dimension(0), info->dimension(1));
    }

    template <typename F>
    void each(F function)
    {
        for (size_t n = 0; n < _result->info()->dimension(2); ++n)
        {
            const Coordinates at(0, 0, static_cast<int>(n));
            SubTensor x(_a, matrix(_a->info()), at), y(_b, matrix(_b->info()), at);
            SubTensor z(_result, matrix(_result->info()), at);
            function(&x, &y, &z);
        }
    }

    Tensor *_a{ nullptr }, *_b{ nullptr }, *_result{ nullptr };
};
"""

PRELUDE = (
    r"""
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

using namespace arm_compute;

namespace
{
struct DLTensor
{
    void *data;
    int32_t device_type, device_id, ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
};

struct Any
{
    int32_t type_index;
    uint32_t padding;
    union { int64_t number; void *pointer; } value;
};

std::shared_ptr<MemoryManagerOnDemand> make_manager()
{
    return std::make_shared<MemoryManagerOnDemand>(std::make_shared<OffsetLifetimeManager>(),
                                                   std::make_shared<PoolManager>());
}

void describe(Tensor &tensor, const TensorShape &shape, DataType type,
              const QuantizationInfo &meaning = QuantizationInfo())
{
    TensorInfo info(shape, 1, type);
    info.set_quantization_info(meaning);
    tensor.allocator()->init(info);
}

void check(const char *label, const char *function, const Status &status)
{
    if (!bool(status))
        throw std::runtime_error(std::string(function) + " refuses " + label + ": "
                                 + status.error_description());
}

"""
    + ADAPTERS
    + r"""
/* Copies between packed memory and a tensor that may have padding, one row at a time. */
void copy_rows(Tensor &tensor, uint8_t *packed, bool into_tensor)
{
    const TensorInfo &info = *static_cast<const TensorInfo *>(tensor.info());
    const TensorShape &shape = info.tensor_shape();
    const size_t row = shape[0] * info.element_size();
    const size_t rows = row ? shape.total_size() / shape[0] : 0;
    Coordinates at;
    for (size_t d = 0; d < shape.num_dimensions(); ++d)
        at.set(d, 0);
    for (size_t n = 0; n < rows; ++n)
    {
        uint8_t *place = tensor.buffer() + info.offset_element_in_bytes(at);
        std::memcpy(into_tensor ? place : packed, into_tensor ? packed : place, row);
        packed += row;
        for (size_t d = 1; d < shape.num_dimensions(); ++d)
        {
            if (static_cast<size_t>(at[d] + 1) < shape[d])
            {
                at.set(d, at[d] + 1);
                break;
            }
            at.set(d, 0);
        }
    }
}

/* A tensor in the caller's memory: used in place unless it needs padding. */
struct Border
{
    Tensor *tensor;
    bool    own;

    void bind(void *data)
    {
        if (!own)
        {
            const Status status = tensor->allocator()->import_memory(data);
            if (!bool(status))
                throw std::runtime_error(status.error_description());
        }
    }
};

class Unit
{
public:
    virtual ~Unit() = default;

    void call(void *const *data)
    {
        for (size_t n = 0; n < inputs.size(); ++n)
        {
            inputs[n].bind(data[n]);
            if (inputs[n].own)
                copy_rows(*inputs[n].tensor, static_cast<uint8_t *>(data[n]), true);
        }
        data += inputs.size();
        for (size_t n = 0; n < outputs.size(); ++n)
            outputs[n].bind(data[n]);
        {
            MemoryGroupResourceScope scope(group);
            for (IFunction *function : functions)
                function->run();
        }
        for (size_t n = 0; n < outputs.size(); ++n)
            if (outputs[n].own)
                copy_rows(*outputs[n].tensor, static_cast<uint8_t *>(data[n]), false);
    }

    size_t arguments() const { return inputs.size() + outputs.size(); }

    std::string error;

    /* Gives every tensor memory once all functions know the padding they want; then lets the
       functions pack their weights. */
    void finish(const void *const *constants)
    {
        for (std::vector<Border> *side : { &inputs, &outputs })
            for (Border &border : *side)
            {
                border.own = border.tensor->info()->has_padding();
                if (border.own)
                    border.tensor->allocator()->allocate();
            }
        std::vector<Tensor *> copies;
        for (size_t n = 0; n < weights.size(); ++n)
        {
            uint8_t *data = static_cast<uint8_t *>(const_cast<void *>(constants[n]));
            if (weights[n]->info()->has_padding())
            {
                weights[n]->allocator()->allocate();
                copy_rows(*weights[n], data, true);
                copies.push_back(weights[n]);
            }
            else
            {
                Border{ weights[n], false }.bind(data);
            }
        }
        Allocator allocator;
        inner->populate(allocator, 1);
        outer->populate(allocator, 1);
        for (IFunction *function : functions)
            function->prepare();
        for (Tensor *copy : copies)
            if (!copy->is_used())
                copy->allocator()->free();
    }

protected:
    std::shared_ptr<MemoryManagerOnDemand> inner = make_manager();
    std::shared_ptr<MemoryManagerOnDemand> outer = make_manager();
    MemoryGroup                            group{ outer };
    std::vector<Border>                    inputs, outputs;
    std::vector<IFunction *>               functions;
    std::vector<Tensor *>                  weights;
};

"""
)

POSTLUDE = r"""
} // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT void *intarsia_acl_open(const void *const *constants, int32_t count, int32_t threads,
                               char *error, size_t size)
{
    try
    {
        if (count != CONSTANTS)
            throw std::runtime_error("the unit has another number of constants");
        Scheduler::get().set_num_threads(THREADS ? THREADS : threads);
        std::unique_ptr<Unit> unit(new Region());
        unit->finish(constants);
        return unit.release();
    }
    catch (const std::exception &failure)
    {
        std::snprintf(error, size, "%s", failure.what());
        return nullptr;
    }
}

/* Asks the library for everything that opening asks it for, but needs no weights. */
EXPORT int intarsia_acl_validate(char *error, size_t size)
{
    try
    {
        Region unit;
        return 0;
    }
    catch (const std::exception &failure)
    {
        std::snprintf(error, size, "%s", failure.what());
        return -1;
    }
}

EXPORT int intarsia_acl_call(void *handle, const Any *arguments, int32_t count, Any *)
{
    Unit *unit = static_cast<Unit *>(handle);
    try
    {
        if (static_cast<size_t>(count) != unit->arguments())
            throw std::runtime_error("called with another number of arguments");
        void *data[CALL_ARGUMENTS];
        for (int32_t n = 0; n < count; ++n)
        {
            uint8_t  *object = static_cast<uint8_t *>(arguments[n].value.pointer);
            DLTensor *tensor = reinterpret_cast<DLTensor *>(
                arguments[n].type_index == 70 ? object + 24 : object);
            data[n] = static_cast<uint8_t *>(tensor->data) + tensor->byte_offset;
        }
        unit->error.clear();
        unit->call(data);
        return 0;
    }
    catch (const std::exception &failure)
    {
        unit->error = failure.what();
        return -1;
    }
}

EXPORT const char *intarsia_acl_error(void *handle)
{
    return static_cast<Unit *>(handle)->error.c_str();
}

EXPORT void intarsia_acl_close(void *handle)
{
    delete static_cast<Unit *>(handle);
}
"""
